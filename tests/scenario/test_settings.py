"""Sections of a scenario as settings."""

import dataclasses
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.base.errors import CutwaterError, RunError, ScenarioError
from cutwater.base.schema import read, schema_of
from cutwater.scenario.settings import SCHEDULES, ConditionSettings, DataSettings, TrainSettings

SECTIONS = {"data": DataSettings, "train": TrainSettings, "conditions": ConditionSettings}


def test_the_example_of_a_scenario_is_read():
    text = """
    [data]
    source = "mnist"
    partition = "paper"
    [train]
    rounds = 60
    clients_per_round = 10
    optimizer = "sgd"
    lr = 0.05
    momentum = 0.9
    seed = 7
    deadline = 300
    optimizer_options = {nesterov = true}
    [conditions]
    change = "markov"
    dropout = 0.05
    estimate = "average"
    """
    tables = tomllib.loads(text)
    train = read(TrainSettings, tables["train"])
    assert read(DataSettings, tables["data"]) == DataSettings(source="mnist")
    assert train == TrainSettings(
        clients_per_round=10, momentum=0.9, seed=7, deadline=300.0, optimizer_options={"nesterov": True}
    )
    assert train.optimizer_arguments() == {"momentum": 0.9, "nesterov": True}
    assert type(train.deadline) is float
    assert read(ConditionSettings, tables["conditions"]).estimate == "average"


@pytest.mark.parametrize("cls", SECTIONS.values())
def test_an_empty_section_is_all_defaults_and_settings_are_frozen(cls):
    made = read(cls, {})
    assert made == cls()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.seed = 3
    with pytest.raises(TypeError):
        cls(1)


@pytest.mark.parametrize("cls", SECTIONS.values())
def test_every_setting_is_described(cls):
    described = {each.name: each.meaning for each in schema_of(cls)}
    assert list(described) == [field.name for field in dataclasses.fields(cls)]
    assert all(described.values())


@pytest.mark.parametrize(
    ("section", "table", "sentence"),
    [
        ("train", {"round": 3}, "[train] has an unknown key 'round': did you mean 'rounds'?"),
        ("train", {"rounds": "60"}, "[train] rounds is '60', but must be a whole number"),
        ("train", {"rounds": 6.5}, "[train] rounds is 6.5, but must be a whole number"),
        ("train", {"rounds": True}, "[train] rounds is True, but must be a whole number"),
        ("train", {"rounds": 0}, "[train] rounds is 0, but must be a whole number of at least 1"),
        ("train", {"lr": "fast"}, "[train] lr is 'fast', but must be a number"),
        ("train", {"lr": float("nan")}, "[train] lr is nan, but must be a number above 0 and at most 1e+30"),
        ("train", {"lr": 0}, "[train] lr is 0, but must be a number above 0"),
        ("train", {"momentum": -1}, "[train] momentum is -1, but must be a finite number of at least 0"),
        ("train", {"schedule": "cosin"}, "[train] schedule is 'cosin': did you mean 'cosine'?"),
        ("train", {"deadline": -5}, "[train] deadline is -5, but must be a finite number of seconds above 0"),
        ("train", {"quorum": 0}, "[train] quorum is 0, but must be a whole number of at least 1"),
        ("train", {"quorum": 4, "clients_per_round": 3}, "but must be at most clients_per_round (3)"),
        ("train", {"clients_per_round": 0}, "[train] clients_per_round is 0"),
        ("train", {"max_grad_norm": 1.0}, "[train] max_grad_norm can't be used: clipping by the global norm"),
        ("train", {"optimizer_options": 3}, "[train] optimizer_options is 3, but must be a table"),
        ("train", {"lr": 1e31}, "[train] lr is 1e+31, but must be a number above 0 and at most 1e+30"),
        (
            "train",
            {"seed": 10**23},
            "but must be a whole number from -9,223,372,036,854,775,807 to 9,223,372,036,854,775,807",
        ),
        (
            "train",
            {"seed": -(2**63)},
            "but must be a whole number from -9,223,372,036,854,775,807 to 9,223,372,036,854,775,807",
        ),
        (
            "train",
            {"over_selection": 1e308},
            "over_selection is 1e+308, but must be a number from 0 to 1e+06",
        ),
        (
            "train",
            {"schedule": "cosine", "final_lr": 1e300},
            "[train] final_lr is 1e+300, but must be a number from 0 to 1e+30",
        ),
        (
            "train",
            {"schedule": "exponential", "gamma": 1e300},
            "[train] gamma is 1e+300, but must be so small",
        ),
        ("train", {"schedule": "exponential", "gamma": 10.0}, "stays at most 1e+30 in all 60 rounds"),
        ("train", {"schedule": "step", "gamma": 1e40, "every": 50}, "[train] gamma is 1e+40, but must be so"),
        ("train", [1], "[train] is [1], but must be a table of keys and values"),
        ("data", {"source": "minst"}, "[data] source is 'minst': did you mean 'mnist'?"),
        ("data", {"partition": "dirichelt"}, "did you mean 'dirichlet'?"),
        ("data", {"alpha": 0}, "[data] alpha is 0, but must be a number above 0"),
        ("data", {"shards": 0}, "[data] shards is 0"),
        ("data", {"alpha": 1e308}, "[data] alpha is 1e+308, but must be a number above 0 and at most 1e+09"),
        (
            "data",
            {"seed": 10**23},
            "but must be a whole number from -9,223,372,036,854,775,807 to 9,223,372,036,854,775,807",
        ),
        ("data", {"local_test": 1}, "[data] local_test is 1, but must be a number of at least 0 and below 1"),
        ("data", {"mirrors": ["a", 3]}, "[data] mirrors[1] is 3, but must be text"),
        ("data", {"scale": "yes"}, "[data] scale is 'yes', but must be true or false"),
        ("conditions", {"change": "jiter"}, "did you mean 'jitter'?"),
        (
            "conditions",
            {"dropout": 1.0},
            "[conditions] dropout is 1.0, but must be a number of at least 0 and below 1",
        ),
        ("conditions", {"degrade": 1.5}, "[conditions] degrade is 1.5, but must be a number from 0 to 1"),
        ("conditions", {"slow_rate": 0}, "[conditions] slow_rate is 0, but must be a number from 1e-06 to 1"),
        ("conditions", {"slow_rate": 1e-320}, "but must be a number from 1e-06 to 1"),
        (
            "conditions",
            {"slow_compute": 1e-7},
            "[conditions] slow_compute is 1e-07, but must be a number from 1e-06 to 1",
        ),
        (
            "conditions",
            {"smoothing": 0},
            "[conditions] smoothing is 0, but must be a number above 0 and at most 1",
        ),
        ("conditions", {"compute_jitter": 1e6}, "but must be a number from 0 to 10"),
        (
            "conditions",
            {"rate_jitter": 11},
            "[conditions] rate_jitter is 11, but must be a number from 0 to 10",
        ),
        ("conditions", {"change": "trace"}, "give both or neither"),
        ("conditions", {"trace": "trace.csv"}, "give both or neither"),
        ("conditions", {"estimate": "guess"}, "[conditions] estimate is 'guess'"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_section_setting_and_value(section, table, sentence):
    with pytest.raises(ScenarioError) as caught:
        read(SECTIONS[section], table)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_construction_in_python_is_checked_in_the_same_words():
    with pytest.raises(ScenarioError, match=r"^TrainSettings rounds is '60', but must be a whole number"):
        TrainSettings(rounds="60")
    with pytest.raises(ScenarioError, match=r"^DataSettings source is None, but must be text"):
        DataSettings(source=None)


values = st.none() | st.booleans() | st.integers(-3, 99) | st.floats() | st.text(max_size=5) | st.just([])


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(sorted(SECTIONS)), st.data())
def test_any_table_is_settings_or_a_sentence(section, data):
    cls = SECTIONS[section]
    names = st.sampled_from([field.name for field in dataclasses.fields(cls)]) | st.text(max_size=8)
    table = data.draw(st.dictionaries(names, values, max_size=4))
    outcome = None
    try:
        outcome = read(cls, table)
    except CutwaterError as error:
        outcome = str(error)
    assert isinstance(outcome, cls) or outcome.startswith(f"[{section}]")


@settings(deadline=None)
@given(
    st.sampled_from(SCHEDULES),
    st.integers(1, 100),
    st.integers(0, 10),
    st.integers(1, 120),
)
def test_the_learning_rate_never_leaves_zero_and_its_start(schedule, rounds, warmup, round_):
    train = TrainSettings(lr=0.1, rounds=rounds, schedule=schedule, gamma=0.9, warmup=warmup)
    assert 0 <= train.learning_rate(round_) <= 0.1 * (1 + 1e-12)


def test_a_schedule_may_grow_as_far_as_the_largest_rate():
    train = TrainSettings(lr=1.0, rounds=31, schedule="exponential", gamma=10.0)
    assert train.learning_rate(31) == pytest.approx(1e30)


def test_schedules_run_as_their_names_say():
    def rates(**options):
        train = TrainSettings(lr=1.0, rounds=10, **options)
        return [train.learning_rate(round_) for round_ in range(1, 12)]

    assert rates() == [1.0] * 11
    assert rates(schedule="step", gamma=0.5, every=4) == [1.0] * 4 + [0.5] * 4 + [0.25] * 3
    assert np.allclose(rates(schedule="exponential", gamma=0.5), 0.5 ** np.arange(11))
    assert np.allclose(rates(schedule="linear", final_lr=0.5), np.linspace(1, 0.5, 11))
    cosine = rates(schedule="cosine")
    assert cosine[0] == 1.0
    assert cosine[5] == pytest.approx(0.5)
    assert cosine[10] == pytest.approx(0.0)
    assert rates(warmup=4)[:6] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])


@pytest.fixture
def their_schedule(tmp_path, monkeypatch):
    (tmp_path / "their_schedule.py").write_text(
        "halves = lambda round_: 0.5 ** (round_ - 1)\n"
        "below = lambda round_: -1.0\n"
        "nothing = lambda round_: None\n"
        "huge = lambda round_: 1e300\n"
        "lost = lambda round_: float('nan')\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    yield
    sys.modules.pop("their_schedule", None)


def test_a_schedule_of_ones_own_is_a_factor_by_round(their_schedule):
    train = TrainSettings(lr=0.2, rounds=3, schedule="their_schedule:halves", warmup=1)
    assert [train.learning_rate(r) for r in (1, 2, 3)] == pytest.approx([0.1, 0.1, 0.05])


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "below": "gave -1.0 for round 2",
        "lost": "gave nan for round 2",
        "huge": "at most 1e\\+30",
        "nothing": "failed at round 2 .TypeError.*returns the factor of lr",
        "number": "must be a function",
        "none_such": "can't be imported",
    }.items(),
)
def test_a_schedule_of_ones_own_that_makes_no_sense_is_refused_by_name(their_schedule, name, words):
    train = TrainSettings(schedule=f"their_schedule:{name}")
    with pytest.raises(RunError, match=f"'their_schedule:{name}'.*{words}"):
        train.learning_rate(2)


@pytest.mark.parametrize(("section", "key"), [("data", "source"), ("train", "schedule")])
def test_an_unknown_name_is_told_how_ones_own_would_be_written(section, key):
    with pytest.raises(
        ScenarioError, match=rf"\[{section}\] {key} is 'nope'.*own is package.module:function"
    ):
        read(SECTIONS[section], {key: "nope"})


def test_more_rounds_than_planned_need_not_change_the_schedule():
    first = TrainSettings(rounds=10, schedule="cosine")
    longer = TrainSettings(rounds=20, horizon=10, schedule="cosine")
    assert [first.learning_rate(r) for r in range(1, 11)] == [longer.learning_rate(r) for r in range(1, 11)]


def test_settings_load_and_share_out_data():
    settings_ = DataSettings(partition="dirichlet", alpha=0.3, scale=True)
    data = settings_.load()
    parts = settings_.share_out(data, ["a", "b"], [3000, 1000], seed=4)
    assert [len(parts[client].train) for client in "ab"] == [1081, 360]
    own_seed = DataSettings(partition="dirichlet", alpha=0.3, scale=True, seed=4)
    again = own_seed.share_out(data, ["a", "b"], [3000, 1000], seed=9)
    assert np.array_equal(again["b"].train, parts["b"].train)


def test_settings_need_no_torch():
    code = "import sys, cutwater.scenario.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
