"""Orders that are out: whatever goes wrong, each is ended, and the room that it took is free again."""

import pytest
from collecting import clocked
from flower_cases import grid_of, settings, write_four

from cutwater.base.errors import EngineError
from cutwater.federate.executor import Orders
from cutwater.flower.executor import FlowerExecutor
from cutwater.flower.shared_study import identity, study_for
from cutwater.serve.hosting import Hosting
from cutwater.serve.sessions import LocalSessions
from cutwater.stream.server import StreamServer


def test_orders_are_all_ended_where_the_stream_is_gone(tmp_path):
    given = settings(write_four(tmp_path))
    study = study_for(given)
    plan = clocked(study, 1).plan
    tasks = tuple(study.tasks(1, plan))
    split = [task.client for task in tasks if task.cut < len(study.model)]
    hosting = Hosting(study.job(), study.profile, study.server.compute)
    with StreamServer(hosting) as stream:
        grid = grid_of(given, **dict.fromkeys(split, lambda records: None))
        sessions = LocalSessions(stream, hosting, "r1")
        executor = FlowerExecutor(study, grid, sessions, run="r1", identity=identity(study, given))
        executor.roster.wait(30.0)
        arrivals = executor.carry_out(Orders(1, plan, tasks, study.initial, len(tasks), None))
        next(arrivals)
        held = executor._book._admission._held
        assert list(held) == split
        assert len(split) == 2
    with pytest.raises(EngineError, match="is not one of this server's, or was revoked"):
        arrivals.close()
    assert held == {}
    hosting.close()
