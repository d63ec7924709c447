"""What a change is worth, found the slow way: the changed fleet planned from the beginning."""

from dataclasses import replace

import numpy as np
import pytest

from cutwater.plan.exact import exact
from cutwater.plan.problem import Server
from cutwater.plan.whatif import ranking


def planned_anew(problem, kind, client, step):
    """The round with one step more of one thing."""
    fleet = problem.fleet
    one = np.array([name == client for name in fleet.names])

    def more(had, amount):
        return np.where(one, had * step.times + amount, had)

    if kind == "server compute":
        changed = problem.replace(server=Server(problem.server.compute * step.times + step.compute))
    elif kind in ("uplink", "downlink"):
        way = kind.removesuffix("link")
        wider = getattr(problem.band, way) * step.times + step.rate
        changed = problem.replace(band=replace(problem.band, **{way: wider}))
    elif kind == "link":
        links = fleet.replace(up=more(fleet.up, step.rate), down=more(fleet.down, step.rate))
        changed = problem.replace(clients=links)
    else:
        changed = problem.replace(clients=fleet.replace(compute=more(fleet.compute, step.compute)))
    return exact(changed, leftover="none").latency


def assert_planned_anew(problem, step, *, top=10, among=None):
    """Every number of a ranking is what planning anew finds, and nothing (``among`` these) is better."""
    found = ranking(problem, step, top=top)
    assert found.latency == pytest.approx(exact(problem, leftover="none").latency, rel=1e-9)
    told = {(each.kind, each.client): each for each in found.changes}
    assert [each.saved for each in found.changes] == sorted((e.saved for e in found.changes), reverse=True)
    for (kind, client), change in told.items():
        assert change.latency == pytest.approx(planned_anew(problem, kind, client, step), rel=1e-9)
        assert change.saved == found.latency - change.latency
    every = [("server compute", None)]
    every += [(f"{way}link", None) for way in ("up", "down") if np.isfinite(getattr(problem.band, way))]
    every += [(kind, name) for name in problem.fleet.names for kind in ("link", "device compute")]
    assert len(told) + found.others == len(every)
    others = [each for each in every if each not in told]
    for kind, client in others if among is None else [others[k] for k in among(len(others))]:
        saved = found.latency - planned_anew(problem, kind, client, step)
        assert saved <= found.at_most + 2e-9 * found.latency
    return found
