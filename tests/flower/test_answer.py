"""What a node answers: to orders that are not for it, with data of its own, with another scenario."""

from dataclasses import replace

import pytest
import torch
from flower_cases import good_node, grid_of, served, settings, write_four
from flwr.app import Message

from cutwater.base.errors import CutwaterError
from cutwater.flower import roster
from cutwater.flower.node import answer, own_batches
from cutwater.flower.shared_study import study_for
from cutwater.train.session import Task


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(roster, "POLL", 0.02)


def replaced(given, **nodes):
    """A grid in which some clients' nodes answer with their own config."""
    grid = grid_of(given)
    for place, name in enumerate(("watch", "phone", "tablet", "laptop"), 11):
        if name in nodes:
            grid.nodes[place] = own_node(name, given, nodes[name])
    return grid


def own_node(name, given, config, study=None):
    study, ordinary = study or study_for(given), good_node(name, given)

    def handle(message):
        if message.metadata.message_type == "query":
            return ordinary(message)
        try:
            return Message(answer(message.content, name, config, given, study=study), reply_to=message)
        except CutwaterError as error:
            raise RuntimeError(str(error)) from error

    return handle


def test_a_node_trains_on_its_own_data_by_a_loader_named_in_its_config(tmp_path):
    given = settings(write_four(tmp_path, rounds=1))
    loader = {"loader": "own_loader:load"}
    (step,) = served(replaced(given, watch=loader), "r1", given)
    assert step.record.lost == {}
    (usual,) = served(grid_of(given), "r1", given)
    assert step.record.weights_sha256 != usual.record.weights_sha256


def test_what_a_model_raises_on_a_node_is_told_to_the_server(tmp_path):
    def breaks(*_):
        raise ValueError("no such pixel\nand a long story")

    given = settings(write_four(tmp_path, rounds=1))
    study = study_for(given)
    next(study.model.module.children()).register_forward_pre_hook(breaks)
    grid = grid_of(given)
    grid.nodes[11] = own_node("watch", given, {}, study)
    (step,) = served(grid, "r1", given)
    assert set(step.record.lost) == {"watch"}
    assert "client 'watch', round 1: ValueError: no such pixel" in step.record.lost["watch"]
    assert "long story" not in step.record.lost["watch"]


def test_a_node_augments_its_own_data_the_same_way_every_time(tmp_path):
    study = study_for(settings(write_four(tmp_path)))
    task = Task("watch", round=1, cut=1, seed=0, lr=0.1, samples=90)

    def images(task):
        return torch.cat([inputs[0] for inputs, _ in own_batches("own_loader:Noisy", study, task)])

    first = images(task)
    torch.manual_seed(3)
    assert torch.equal(images(task), first)
    assert not torch.equal(images(replace(task, round=2)), first)


def test_a_node_whose_own_data_is_not_what_the_scenario_counts_on_is_left_out(tmp_path):
    given = settings(write_four(tmp_path, rounds=1))
    nodes = {
        name: {"loader": f"own_loader:{function}"}
        for name, function in {"watch": "failing", "phone": "load", "tablet": "none"}.items()
    }
    (step,) = served(replaced(given, **nodes), "r1", given)
    assert "can't load the data of client 'watch' (OSError: no disk, at " in step.record.lost["watch"]
    assert "returned 7 samples" in step.record.lost["phone"]
    assert "can't be imported" in step.record.lost["tablet"]


def test_a_node_with_another_scenario_refuses_to_train(tmp_path):
    (tmp_path / "other").mkdir()
    given = settings(write_four(tmp_path, rounds=1))
    other = settings(write_four(tmp_path / "other", rounds=1, dropout=0.5))
    grid = grid_of(given)
    grid.nodes[11] = good_node("watch", other)
    (step,) = served(grid, "r1", given)
    assert "not the server's" in step.record.lost["watch"]


def test_mini_batches_are_counted_as_they_are_drawn(tmp_path):
    study = study_for(settings(write_four(tmp_path)))
    assert study.batch_sizes("watch") == [16, 16, 16]
    own = replace(study, fleet=study.fleet.replace(epochs=[2, 0, 0, 0], batch_size=[20, 0, 0, 0]))
    for name in own.fleet.names:
        task = Task(name, round=1, cut=1, seed=0, lr=0.1, samples=own.client(name).samples)
        assert own.batch_sizes(name) == [len(labels) for _, labels in own.batches(task)]
