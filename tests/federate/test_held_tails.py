"""Labels stay, and a tail's frozen weights travel once, as a head's do: plan, counters and clock agree."""

from dataclasses import replace

import pytest
import torch
from collecting import run
from hypothesis import given, settings
from hypothesis import strategies as st
from language_study import language_study
from tied_models import WORDS, Embedded

from cutwater.federate.clock import clock_only
from cutwater.plan.fleet import Held
from cutwater.plan.latency import session_bits
from cutwater.plan.places import place_of
from cutwater.runs.folder import _held
from cutwater.train.session import Task

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")


def adapted_llama():
    """Six layers, the first and the last of words, nothing tied; what learns are the adapters."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(num_hidden_layers=3, vocab_size=400, use_cache=False, **sizes)
    )
    return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))


def test_a_later_round_brings_adapters_and_activations_alone():
    study = language_study(adapted_llama(), planner="splitfed", planner_options={"cut": "1-5"})
    study = replace(study, train=replace(study.train, rounds=2))
    assert len(study.model) == 6
    first, second = run(study)
    job, (task, *_) = study.job(), study.tasks(1, first.outcome.plan)
    adapters = sum(job.traffic(1, 5).learned.values())
    activations = 8 * (study.profile.cuts[4].smashed_bits + study.profile.cuts[0].gradient_bits) // 8
    head = 4 * 16 * 400
    assert second.record.bytes_down == pytest.approx(3 * (adapters + activations), rel=0.02)
    assert first.record.bytes_down - second.record.bytes_down >= 3 * 2 * head
    assert second.progress.holds == dict.fromkeys(first.outcome.plan.names, Held(1, 1))
    assert (task.holds, task.holds_last) == (0, 0)
    assert [each.record.actual_seconds for each in (first, second)] == [
        each.seconds for each in clock_only(study, 2)
    ]
    assert second.record.actual_seconds < first.record.actual_seconds


class Frozen(Embedded):
    """Its words and an inner layer are frozen, and both are used again further on."""

    def __init__(self):
        super().__init__(tied=True)
        self.words.weight.requires_grad_(False)
        self.first[0].requires_grad_(False)
        self.again = self.first[0]

    def forward(self, tokens):
        return self.out(self.again(self.norm(self.second(self.first(self.words(tokens))))))


@pytest.fixture(scope="module")
def frozen():
    return language_study(Frozen())


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_what_is_sent_is_what_is_planned_whoever_holds_what(frozen, data):
    layers = len(frozen.model)
    pairs = [(cut, second) for cut in range(1, layers) for second in range(cut + 1, layers)]
    cut, second = data.draw(st.sampled_from([(layers, 0), *pairs]))
    first, last = data.draw(st.integers(0, layers)), data.draw(st.integers(0, layers))
    client = replace(frozen.client("c1"), rate=None, holds=first, holds_last=last)
    _, down = session_bits(frozen.problem([client]), place_of(cut, second, layers))
    task = Task("c1", 1, cut, 0, 0.1, 12, holds=first, holds_last=last, second_cut=second)
    crossing = 0
    if second:
        rows = frozen.profile.cuts
        crossing = 8 * (rows[second - 1].smashed_bits + rows[cut - 1].gradient_bits) // 8
    assert frozen.job().model_bytes(task)[0] == down.item() / 8 - crossing


def test_a_weight_of_two_names_is_held_under_both(frozen):
    assert frozen.model.names_at_ends(1, 0) >= {"words.weight", "out.weight"}
    assert frozen.model.names_at_ends(0, 1) >= {"words.weight", "out.weight"}
    assert WORDS * 8 * 4 in frozen.traffic.fixed.values()
    names = frozen.model.names_at_ends(0, len(frozen.model))
    assert names == frozen.model.names_at_ends(len(frozen.model), 0)
    assert not frozen.model.names_at_ends(0, 0)


def test_what_was_held_after_several_sessions():
    held = Held.after(2, 5, 6).joined(Held.after(1, 3, 6))
    assert held == Held(2, 3)
    assert Held.after(6, 0, 6) == Held(6, 0)


def test_an_older_checkpoint_tells_of_first_layers_alone():
    assert _held(3) == Held(3, 0)
    assert _held([3, 1]) == Held(3, 1)
