"""Rounds over a grid, with a real stream, in which somebody is lost in mid-session."""

import threading

import pytest
from flower_cases import served, settings, sha256_of, write_four
from memory_grid import MemoryGrid
from test_leases import nodes_of

from cutwater.base.errors import EngineError
from cutwater.flower import leases, node, roster, watched
from cutwater.flower.shared_study import study_for
from cutwater.runs.audit import audit
from cutwater.serve.hosting import Hosting

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(roster, "POLL", 0.02)
    monkeypatch.setattr(leases, "_LOOK", 0.02)


@pytest.fixture
def all_split(tmp_path):
    """A scenario whose four clients are too weak for the whole model."""
    path = write_four(tmp_path, rounds=1, dropout=0.2)
    weak = path.read_text().replace('"0.2 GFLOPS"', '"0.001 GFLOPS"').replace('"2 GFLOPS"', '"0.003 GFLOPS"')
    path.write_text(weak)
    return path


class Staged:
    """Every session stops after its first mini-batch; then one is lost, and the rest wait for new shares."""

    def __init__(self, monkeypatch, lost, clients):
        self.lost, self.met, self.shared = lost, threading.Barrier(clients), threading.Event()
        self.shares = {}
        run, reshare = node.run_at_device, Hosting.reshare

        def run_staged(study, task, ticket, weights, batches, meter):
            return run(study, task, ticket, weights, self.batches(task.client, batches), meter)

        def reshare_noted(hosting, session, share):
            reshare(hosting, session, share)
            if any(each.task.client == lost for each in hosting._sessions.values()):
                return
            (delivery,) = [each for each in hosting._shares.report() if each.name == session]
            self.shares[hosting._sessions[session].task.client] = delivery.share
            if len(self.shares) == clients - 1:
                self.shared.set()

        monkeypatch.setattr(node, "run_at_device", run_staged)
        monkeypatch.setattr(Hosting, "reshare", reshare_noted)
        # All of them are silent for as long as this machine takes.
        monkeypatch.setattr(watched, "_GRACE", PATIENCE)

    def batches(self, client, batches):
        for place, batch in enumerate(batches):
            if place == 1:
                self.met.wait(PATIENCE)
                if client == self.lost:
                    raise EngineError("its battery is empty")
                assert self.shared.wait(PATIENCE), "the others never got its share"
            yield batch


@pytest.mark.parametrize("lease", [False, True])
def test_the_share_of_who_is_lost_in_mid_round_is_poured_over_the_others_and_no_bit_changes(
    all_split, tmp_path, monkeypatch, lease
):
    given = settings(all_split, lease=lease, run_dir=str(tmp_path / "run"))
    staged = Staged(monkeypatch, "phone", 4)
    (step,) = served(MemoryGrid(nodes_of(given)), "r1", given)
    assert "battery" in step.record.lost["phone"]
    assert list(step.record.clients) == ["watch", "tablet", "laptop"]
    assert {part.mode for part in step.outcome.parts} == {"split"}
    change = next(each for each in step.measured.replanned if each.why == "client phone is lost")
    study = study_for(given)
    assert sum(change.shares.values()) == pytest.approx(study.server.compute)
    assert dict(change.shares) == pytest.approx(staged.shares), "the fair queue has them"
    assert change.planned_seconds <= change.kept_seconds
    monkeypatch.undo()
    assert step.record.weights_sha256 == sha256_of(given, ["watch", "tablet", "laptop"])
    (kept,) = audit(tmp_path / "run").rounds
    assert kept.replanned == step.measured.replanned
