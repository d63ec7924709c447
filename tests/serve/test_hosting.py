"""The server's halves: memory by open session, given back at the end; nothing left of a failed one."""

import copy
import gc
import threading
import time

import own_loop
import pytest
import torch
from flower_cases import settings, write_four

from cutwater.base.errors import EngineError
from cutwater.flower.shared_study import study_for
from cutwater.model.traffic import tensor_bytes
from cutwater.serve.answer_first import AnswerFirst
from cutwater.serve.hosting import Hosting
from cutwater.serve.shares import Lane
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.step_trainer import SessionInfo, SessionRecord
from cutwater.train.session import Task
from cutwater.train.step import Part, ServerSide


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return study_for(settings(write_four(tmp_path_factory.mktemp("hosting"))))


@pytest.fixture
def hosting(study):
    hosting = Hosting(study.job(), study.profile, study.server.compute)
    yield hosting
    hosting.close()


def session(number, cut=2):
    return SessionInfo(f"s{number}", "r1", 1, f"c{number}", cut)


def task(number, cut=2):
    return Task(f"c{number}", 1, cut, seed=3, lr=0.05, samples=10)


def record(of, failure=None):
    counts = {"parts": 1, "steps": 1, "samples": 16, "openings": 1}
    nothing = dict.fromkeys(("tensors_up", "tensors_down", "bytes_up", "bytes_down"), 0)
    return SessionRecord(session=of, **counts, **nothing, seconds={}, failure=failure)


def smashed_of(study, cut=2):
    inputs, labels = next(iter(study.test()))
    with torch.no_grad():
        smashed = study.model.split(cut).client(inputs[0][:16])
    return (smashed.requires_grad_(),), labels[:16]


def step(hosting, of, number, smashed, labels):
    """A step and, its gradients being out, its rest, as the stream would have it."""
    result = own_loop.run(hosting.step(of, Part(number), smashed, labels))
    if result.rest is not None:
        result.rest()
    return result


def held_bytes():
    gc.collect()
    storages = {}
    for found in gc.get_objects():
        if type(found) in (torch.Tensor, torch.nn.Parameter):
            storage = found.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def test_an_open_session_holds_one_server_side_model_and_its_optimizer_state(study, hosting):
    smashed, labels = smashed_of(study)
    server = study.model.split(2).server
    model = tensor_bytes(server.state_dict().values())
    momentum = tensor_bytes(server.parameters())
    before = held_bytes()
    sessions = [session(number) for number in range(8)]
    for number, each in enumerate(sessions):
        hosting.expect(each.id, task(number), 1e6, study.initial)
    assert held_bytes() - before < model, "a half is copied when it is used"
    for each in sessions:
        step(hosting, each, 0, smashed, labels)
    assert hosting.open == 8
    assert held_bytes() - before <= 8 * (model + momentum) + 16 * tensor_bytes((*smashed, labels))
    for each in sessions:
        own_loop.run(hosting.closed(each, record(each)))
        hosting.collect(each.id)
    assert hosting.open == 0
    assert held_bytes() - before <= 2 * tensor_bytes((*smashed, labels))


def test_a_session_that_failed_leaves_nothing(study, hosting):
    smashed, labels = smashed_of(study)
    hosting.expect("s1", task(1), 1e6, study.initial)
    step(hosting, session(1), 0, smashed, labels)
    own_loop.run(hosting.closed(session(1), record(session(1), RefusedError(Status.ABORTED, "gone"))))
    with pytest.raises(EngineError, match="no trained half of session"):
        hosting.collect("s1")
    assert hosting.open == 0


def test_a_session_that_nobody_expects_is_refused(study, hosting):
    smashed, labels = smashed_of(study)
    with pytest.raises(EngineError, match="no session here"):
        own_loop.run(hosting.step(session(5), Part(0), smashed, labels))


def test_sessions_train_copies_and_never_the_model_itself(study, hosting):
    smashed, labels = smashed_of(study)
    before = {name: tensor.clone() for name, tensor in study.model.module.state_dict().items()}
    hosting.expect("s1", task(1), 1e6, study.initial)
    step(hosting, session(1), 0, smashed, labels)
    own_loop.run(hosting.closed(session(1), record(session(1))))
    trained = hosting.collect("s1")
    after = study.model.module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert any(not torch.equal(trained.state[name], before[name]) for name in trained.state)
    assert trained.share is not None
    assert trained.share > 0
    assert trained.delivery.delivered == 1.0


def plain_weights(study, smashed, labels, steps):
    """What a half that does everything in one go would have come to."""
    half = copy.deepcopy(study.model.split(2).server)
    half.load_state_dict({name: study.initial[name] for name in half.state_dict()})
    job = study.job()
    side = ServerSide(half, job.optimizer(task(1).lr), task(1).seed, job.loss)
    for number in range(steps):
        side.step(number, tuple(each.detach().requires_grad_() for each in smashed), labels)
    return half.state_dict()


def holds_graph(hosting, of):
    return hosting._sessions[of.id].first.holds_graph


def test_a_session_alone_is_answered_first_and_comes_to_the_same_weights(study, hosting):
    smashed, labels = smashed_of(study)
    hosting.expect("s1", task(1), 1e6, study.initial)
    held = []
    for number in range(6):
        result = own_loop.run(hosting.step(session(1), Part(number), smashed, labels))
        held.append(holds_graph(hosting, session(1)))
        result.rest()
        own_loop.run(hosting._sessions["s1"].first.updated())
        assert not holds_graph(hosting, session(1))
    assert held == [False, True] * 3, "both ways are tried"
    own_loop.run(hosting.closed(session(1), record(session(1))))
    trained = hosting.collect("s1")
    wanted = plain_weights(study, smashed, labels, 6)
    assert all(torch.equal(trained.state[name], wanted[name]) for name in wanted)


def test_switched_off_nothing_of_it_runs_and_the_weights_are_the_same(study, monkeypatch):
    for name in ("differentiate", "update", "update_in", "give_up"):
        monkeypatch.setattr(AnswerFirst, name, lambda *_, **__: pytest.fail("it was switched off"))
    monkeypatch.setattr(Lane, "follow", lambda *_: pytest.fail("nothing follows an answer"))
    smashed, labels = smashed_of(study)
    hosting = Hosting(study.job(), study.profile, study.server.compute, answer_first=False)
    try:
        hosting.expect("s1", task(1), 1e6, study.initial)
        for number in range(6):
            assert own_loop.run(hosting.step(session(1), Part(number), smashed, labels)).rest is None
        own_loop.run(hosting.closed(session(1), record(session(1))))
        trained = hosting.collect("s1")
    finally:
        hosting.close()
    wanted = plain_weights(study, smashed, labels, 6)
    assert all(torch.equal(trained.state[name], wanted[name]) for name in wanted)


def test_whatever_thread_it_is_done_in_the_rest_uses_no_others(study, hosting, monkeypatch):
    seen = {}
    update = ServerSide.update

    def watched(side):
        seen[threading.get_ident()] = torch.get_num_threads()
        update(side)

    monkeypatch.setattr(ServerSide, "update", watched)
    smashed, labels = smashed_of(study)
    hosting.expect("s1", task(1), 1e6, study.initial)

    def rest(result):
        torch.set_num_threads(2)
        result.rest()

    for number in range(4):
        result = own_loop.run(hosting.step(session(1), Part(number), smashed, labels))
        elsewhere = threading.Thread(target=rest, args=(result,))
        elsewhere.start()
        elsewhere.join()
        own_loop.run(hosting._sessions["s1"].first.updated())
    assert len(seen) > 1, "brief ones are done where they are handed in"
    assert set(seen.values()) == {1}


def test_one_session_at_a_time_keeps_the_memory_of_a_step(study, hosting):
    smashed, labels = smashed_of(study)
    sessions = [session(number) for number in range(4)]
    rests = []
    for number, each in enumerate(sessions):
        hosting.expect(each.id, task(number), 1e6, study.initial)
        step(hosting, each, 0, smashed, labels)
        # Its client takes no answers from now on, so the rest has to wait.
        rests.append(own_loop.run(hosting.step(each, Part(1), smashed, labels)).rest)
    assert [holds_graph(hosting, each) for each in sessions] == [True, False, False, False]
    rests[0]()
    own_loop.run(hosting._sessions["s0"].first.updated())
    assert not any(holds_graph(hosting, each) for each in sessions)


def test_sessions_that_take_turns_are_served_in_one_go(study, hosting):
    smashed, labels = smashed_of(study)
    for number in (1, 2):
        hosting.expect(f"s{number}", task(number), 1e6, study.initial)
    for number in range(4):
        for each in (session(1), session(2)):
            result = own_loop.run(hosting.step(each, Part(number), smashed, labels))
            assert not holds_graph(hosting, each)
            result.rest()


def test_what_a_session_got_counts_what_was_done_after_its_answers(study, hosting, monkeypatch):
    update = ServerSide.update
    monkeypatch.setattr(ServerSide, "update", lambda side: (time.sleep(0.2), update(side)))
    smashed, labels = smashed_of(study)
    hosting.expect("s1", task(1), 1e6, study.initial)
    step(hosting, session(1), 0, smashed, labels)
    own_loop.run(hosting.closed(session(1), record(session(1))))
    assert hosting.collect("s1").seconds >= 0.2


def test_a_session_that_ends_with_its_rest_undone_is_in_nobodys_way(study, hosting):
    smashed, labels = smashed_of(study)
    for number in (1, 2):
        hosting.expect(f"s{number}", task(number), 1e6, study.initial)
        step(hosting, session(number), 0, smashed, labels)
        own_loop.run(hosting.step(session(number), Part(1), smashed, labels))
        assert holds_graph(hosting, session(number))
        gone = record(session(number), RefusedError(Status.ABORTED, "gone"))
        own_loop.run(hosting.closed(session(number), gone))


@pytest.fixture
def slow_updates(monkeypatch):
    """Updates of server halves wait until the event is set."""
    may_update = threading.Event()
    update = ServerSide.update

    def slow(side):
        assert may_update.wait(10)
        update(side)

    monkeypatch.setattr(ServerSide, "update", slow)
    return may_update


def test_gradients_go_out_before_the_update_and_the_end_waits_for_it(study, hosting, slow_updates):
    smashed, labels = smashed_of(study)
    hosting.expect("s1", task(1), 1e6, study.initial)
    first = step(hosting, session(1), 0, smashed, labels)
    assert first.gradients, "nothing has been updated yet"
    assert not slow_updates.is_set()
    threading.Timer(0.05, slow_updates.set).start()
    step(hosting, session(1), 1, smashed, labels)
    slow_updates.clear()
    threading.Timer(0.05, slow_updates.set).start()
    own_loop.run(hosting.closed(session(1), record(session(1))))
    half = copy.deepcopy(study.model.split(2).server)
    half.load_state_dict({name: study.initial[name] for name in half.state_dict()})
    side = ServerSide(half, study.job().optimizer(0.05), 3, study.job().loss)
    losses = [side.step(number, smashed_of(study)[0], labels).loss for number in (0, 1)]
    assert losses[0] == first.loss
    trained = hosting.collect("s1").state
    assert all(torch.equal(trained[name], tensor) for name, tensor in half.state_dict().items())


@pytest.mark.parametrize("end", ["step", "closed"])
def test_an_update_that_fails_fails_its_session(study, hosting, monkeypatch, end):
    def broken(side):
        raise EngineError("out of memory")

    monkeypatch.setattr(ServerSide, "update", broken)
    smashed, labels = smashed_of(study)
    hosting.expect("s1", task(1), 1e6, study.initial)
    step(hosting, session(1), 0, smashed, labels)
    doing = {
        "step": lambda: hosting.step(session(1), Part(1), smashed, labels),
        "closed": lambda: hosting.closed(session(1), record(session(1))),
    }
    with pytest.raises(EngineError, match="out of memory"):
        own_loop.run(doing[end]())
    own_loop.run(hosting.closed(session(1), record(session(1), RefusedError(Status.ABORTED, "gone"))))
    with pytest.raises(EngineError, match="no trained half of session"):
        hosting.collect("s1")
    assert hosting._shares.report() == ()


def test_an_emulated_server_takes_no_less_time_for_having_updated_in_between(study, monkeypatch):
    update = ServerSide.update
    monkeypatch.setattr(ServerSide, "update", lambda side: (time.sleep(0.05), update(side)))
    smashed, labels = smashed_of(study)
    cut = study.profile.cuts[1]
    flops = (cut.server_forward_flops + cut.server_backward_flops) * len(labels)
    hosting = Hosting(study.job(), study.profile, flops / 0.2, emulate=True)
    hosting.expect("s1", task(1), 1e6, study.initial)
    taken = 0.0
    for number in range(3):
        began = time.monotonic()
        step(hosting, session(1), number, smashed, labels)
        taken += time.monotonic() - began
        time.sleep(0.1)
    hosting.close()
    # All together: what one step sleeps too long on a busy machine, the next sleeps less.
    assert taken >= 3 * 0.195


def test_a_session_whose_part_at_the_server_costs_nothing_takes_its_turn(study, hosting):
    smashed, labels = smashed_of(study)
    hosting.expect("s1", task(1), 0.0, study.initial)
    assert step(hosting, session(1), 0, smashed, labels).gradients
