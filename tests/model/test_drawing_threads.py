"""Layers draw the same wherever the model is cut, and whoever draws beside them."""

import threading

import torch

from cutwater.model.randomness import RandomStream, drawn_from, enter_layer


def test_while_a_layer_draws_nobody_draws_for_samples():
    entered, over = threading.Event(), threading.Event()

    def read_samples():
        with drawn_from("samples"):
            entered.set()
            over.wait(20)

    reader = threading.Thread(target=read_samples)
    with RandomStream(1, 2):
        enter_layer(0)
        reader.start()
        assert not entered.wait(0.5)
        found = torch.rand(3)
    assert entered.wait(20)
    over.set()
    reader.join(20)
    with RandomStream(1, 2):
        enter_layer(0)
        assert torch.equal(torch.rand(3), found)
