"""The sweep's figure, and the colours that all figures share."""

import pytest

from cutwater.base.errors import CutwaterError
from cutwater.plan.latency import PHASES
from cutwater.plan.planners import planners
from cutwater.report.drawings import draw_sweep
from cutwater.report.figures import GROUP_COLOURS, GROUPS, PHASE_COLOURS, PLANNER_COLOURS, save_figure


def test_every_phase_has_one_colour_of_its_own_and_one_group():
    assert set(PHASE_COLOURS) == set(PHASES)
    assert len(set(PHASE_COLOURS.values())) == len(PHASES)
    assert sorted(phase for group in GROUPS.values() for phase in group) == sorted(PHASES)
    assert GROUP_COLOURS.keys() == GROUPS.keys()


def test_planners_that_are_drawn_together_have_different_colours():
    assert set(PLANNER_COLOURS) <= set(planners())
    together = [PLANNER_COLOURS[name] for name in ("exact", "alternating", "fedavg", "greedy", "splitfed")]
    assert len(set(together)) == len(together)


def test_a_sweep_is_a_labelled_line_for_each_planner():
    figure = draw_sweep(
        [1.0, 2.0, 3.0],
        {"exact": [3.0, 2.0, 1.0], "fedavg": [4.0, None, 4.0], "mine": [5.0, 5.0, 5.0]},
        label="Server compute (GFLOPS)",
        logarithmic=True,
    )
    axes = figure.axes[0]
    assert [line.get_label() for line in axes.lines] == ["exact", "fedavg", "mine"]
    assert axes.get_xlabel() == "Server compute (GFLOPS)"
    assert axes.get_ylabel() == "Round latency (s)"
    assert axes.get_xscale() == "log"
    assert axes.get_ylim()[0] == 0


@pytest.mark.parametrize("name", ["sweep.png", "sweep.svg", "sweep.pdf"])
def test_it_is_written_as_its_ending_says(tmp_path, name):
    path = tmp_path / "deep" / name
    save_figure(draw_sweep([1.0, 2.0], {"exact": [2.0, 1.0]}, label="Clients"), path)
    assert path.stat().st_size > 1000


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    figure = draw_sweep([1.0, 2.0], {"exact": [2.0, 1.0]}, label="Clients")
    with pytest.raises(CutwaterError, match=r"'sweep\.gif'"):
        save_figure(figure, tmp_path / "sweep.gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(CutwaterError, match="can't be written"):
        save_figure(figure, tmp_path / "file" / "sweep.png")
