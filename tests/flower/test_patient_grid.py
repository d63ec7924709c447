"""A SuperLink that is too busy for a moment ends no run."""

import httpx
import pytest
from flower_cases import grid_of, served, settings, sha256_of, write_four

from cutwater.flower import patient_grid
from cutwater.flower.patient_grid import PatientGrid

EVERYBODY = ["watch", "phone", "tablet", "laptop"]


def refused(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "https://superlink/push-messages")
    return httpx.HTTPStatusError("refused", request=request, response=httpx.Response(status))


class Busy:
    """A grid of which the first calls of every kind fail."""

    def __init__(self, grid, times=2, error=None):
        self._grid, self._error, self.failed = grid, error or refused(500), {}
        self._times = times

    def __getattr__(self, name):
        real = getattr(self._grid, name)
        if name not in ("get_nodes", "push_messages", "pull_messages"):
            return real

        def call(*arguments):
            if self.failed.get(name, 0) < self._times:
                self.failed[name] = self.failed.get(name, 0) + 1
                raise self._error
            return real(*arguments)

        return call


def test_a_run_goes_on_where_the_superlink_failed_at_calls_of_every_kind(tmp_path, monkeypatch):
    monkeypatch.setattr(PatientGrid.__init__, "__defaults__", (patient_grid.PATIENCE, 0.01))
    given = settings(write_four(tmp_path, rounds=1))
    grid = Busy(grid_of(given))
    (step,) = served(grid, "r1", given)
    assert grid.failed == {"get_nodes": 2, "push_messages": 2, "pull_messages": 2}
    assert step.record.lost == {}
    assert step.record.weights_sha256 == sha256_of(given, EVERYBODY)


@pytest.mark.parametrize(
    ("error", "patience"), [(refused(403), 60.0), (OSError("gone"), 60.0), (refused(503), 0.05)]
)
def test_what_is_no_passing_fault_is_raised(error, patience):
    class Nobody:
        def get_nodes(self):
            return []

    with pytest.raises(type(error)):
        PatientGrid(Busy(Nobody(), 10**9, error), patience, 0.01).get_nodes()
