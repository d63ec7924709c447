"""Journals: what outlives a process of a session, what of a damaged one is refused, and who is told what."""

import asyncio
import itertools
import json
import resource
import stat
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_rig import QUICK, Echo, eventually, example, expected

from cutwater.base.errors import EngineError, FileFormatError
from cutwater.stream import journal
from cutwater.stream.client import StreamClient
from cutwater.stream.frames import FrameKind
from cutwater.stream.journal import JournalFile, Kind, pack_side, unpack_side
from cutwater.stream.lasting import LastingServer, Session
from cutwater.stream.move import Move
from cutwater.stream.office import Office
from cutwater.stream.refusal import RefusedError
from cutwater.stream.step_trainer import StepResult
from cutwater.stream.ticket import Claims, TicketKey
from cutwater.stream.tls import Certificate
from cutwater.train.kept_side import SideState
from cutwater.train.step import Part

ENTRIES = ((Kind.BIND, b"who"), (Kind.PART, bytes(range(200))), (Kind.PART, b""), (Kind.FINISH, b"{}"))


def written(folder: Path) -> Path:
    path = folder / "s.journal"
    file = JournalFile.begin(path, b"what it is")
    for entry in ENTRIES:
        file.append(*entry)
    file.close()
    return path


def ends(path: Path) -> list[int]:
    """Where each entry ends."""
    sizes = [21 + len(content) for content in (b"what it is", *(content for _, content in ENTRIES))]
    assert sum(sizes) == path.stat().st_size
    return list(itertools.accumulate(sizes))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_cut_off_anywhere_a_journal_has_its_whole_entries_and_can_be_gone_on_with(tmp_path_factory, data):
    path = written(tmp_path_factory.mktemp("torn"))
    content, places = path.read_bytes(), ends(path)
    cut = data.draw(st.integers(places[0], len(content)))
    path.write_bytes(content[:cut])
    whole = [(Kind.OPEN, b"what it is"), *ENTRIES][: sum(end <= cut for end in places)]
    file = JournalFile(path)
    assert list(file.entries()) == whole
    file.go_on()
    file.append(Kind.PART, b"the next")
    file.close()
    assert list(JournalFile(path).entries()) == [*whole, (Kind.PART, b"the next")]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_bit_that_has_flipped_anywhere_is_noticed(tmp_path_factory, data):
    path = written(tmp_path_factory.mktemp("flipped"))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"damaged at byte \d+"):
        list(JournalFile(path).entries())


def test_a_snapshot_takes_the_place_of_all_parts_and_nobody_else_can_read_it(tmp_path):
    file = JournalFile.begin(tmp_path / "s.journal", b"what it is")
    for entry in (*ENTRIES[:2], (Kind.BIND, b"who now")):
        file.append(*entry)
    assert file.logged > 200
    tied = torch.arange(6.0).view(2, 3)
    snapshot = SideState({"a": tied, "b": tied, "c": torch.tensor(3)}, {"loss": 0.1, "more": [1, None]})
    file.shorten(pack_side(snapshot))
    assert file.logged == 0
    file.append(Kind.PART, b"after")
    found = list(JournalFile(file.path).entries())
    assert [kind for kind, _ in found] == [Kind.OPEN, Kind.SNAPSHOT, Kind.BIND, Kind.PART]
    assert (found[0][1], found[2][1], found[3][1]) == (b"what it is", b"who now", b"after")
    read = unpack_side(found[1][1])
    assert read.plain == snapshot.plain
    assert all(torch.equal(read.tensors[name], tensor) for name, tensor in snapshot.tensors.items())
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file.path]


class Counting(Echo):
    """Halves that are a number: how many parts they have seen, which their gradients tell."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}
        self.snapshots = 0

    async def step(self, session, part, smashed, labels) -> StepResult:
        await super().step(session, part, smashed, labels)
        self.seen[session.id] = self.seen.get(session.id, 0) + 1
        count = float(self.seen[session.id])
        return StepResult(tuple(torch.full_like(t, count) for t in smashed if t.requires_grad), count)

    async def snapshot(self, session) -> SideState:
        self.snapshots += 1
        return SideState({"seen": torch.tensor(self.seen[session.id])}, {})

    async def restore(self, session, snapshot) -> None:
        self.seen[session.id] = int(snapshot.tensors["seen"])


class Place:
    """Where one server follows the other."""

    def __init__(self, folder: Path, expect=None, *, most=None, half=Counting) -> None:
        self.half = half
        self.folder, self.expect, self.most = folder, expect or expected(), most
        self.key, self.certificate, self.port = bytes(range(32)), Certificate.self_signed(), 0

    def server(self) -> tuple[LastingServer, Counting]:
        half = self.half()
        options = {"key": TicketKey(self.key), "certificate": self.certificate, "limits": QUICK}
        server = LastingServer(half, self.folder, self._make, most_noted=self.most, port=self.port, **options)
        server.__enter__()
        self.port = server.port
        return server, half

    def _make(self, opening) -> Session:
        return Session(Claims(**opening["claims"]), self.expect, opening["issued"])

    def open(self, server: LastingServer, seconds: float = 30.0):
        office = Office(TicketKey(self.key), self.certificate, "127.0.0.1", self.port)
        ticket = office.issue(
            run="r", round=1, client="k1", cut=2, open_seconds=seconds, session_seconds=seconds
        )
        server.open({"claims": asdict(ticket.claims), "issued": time.monotonic()})
        return ticket

    def client(self, ticket) -> StreamClient:
        return StreamClient(ticket, self.expect, client="k1", limits=QUICK)


@pytest.mark.parametrize("most", [0, None])
def test_a_server_that_is_closed_gives_no_verdict_and_the_next_goes_on(tmp_path, most):
    place = Place(tmp_path, most=most)
    first, half = place.server()
    ticket = place.open(first)
    smashed, labels = example()
    with place.client(ticket) as client:
        for number in range(5):
            assert client.step(number, smashed, labels).loss == number + 1
        first.close()
        assert half.snapshots == (4 if most == 0 else 0)
        second, half = place.server()
        assert len(half.steps) == (1 if most == 0 else 5), "what follows the snapshot is computed again"
        for number in range(5, 8):
            assert client.step(number, smashed, labels).loss == number + 1
        assert client.finish() == 8
    record = second.drop(ticket.claims.id)
    assert (record.steps, record.samples, record.failure) == (8, 32, None)
    assert record.tensors_up == 8 * (smashed[0].nbytes + labels.nbytes)
    assert list(tmp_path.iterdir()) == []
    second.close()


def test_a_client_that_is_done_is_told_so_by_the_next_server_too(tmp_path):
    place = Place(tmp_path)
    first, _ = place.server()
    ticket = place.open(first)
    with place.client(ticket) as client:
        client.step(0, *example())
        client.finish()
        first.close()
        second, half = place.server()
        assert second.record_of(ticket.claims.id).steps == 1
        assert [record.steps for record in half.closes] == [1]
        assert client.finish() == 1, "said twice, it is done once"
        assert len(half.closes) == 1
    second.close()


def _begun(place: Place):
    """A session with one step, whose server is gone; its client and journal."""
    server, _ = place.server()
    ticket = place.open(server)
    client = place.client(ticket)
    client.__enter__()
    client.step(0, *example())
    server.close()
    return client, ticket, place.folder / f"{ticket.claims.id}.journal"


def test_a_damaged_journal_refuses_its_session_in_a_sentence_and_no_other(tmp_path):
    place = Place(tmp_path)
    client, ticket, path = _begun(place)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    second, _ = place.server()
    with pytest.raises(RefusedError, match=r"can't go on: the session's journal is damaged at byte \d+"):
        client.step(1, *example())
    assert "is damaged" in str(second.record_of(ticket.claims.id).failure)
    with place.client(place.open(second)) as other:
        assert other.step(0, *example()).loss == 1
    client.close()
    second.close()


def test_one_that_does_not_even_say_what_it_is_keeps_nobody_from_starting(tmp_path):
    place = Place(tmp_path)
    client, _, path = _begun(place)
    path.write_bytes(path.read_bytes()[:5])
    second, _ = place.server()
    with pytest.raises(RefusedError, match="PERMISSION_DENIED"):
        client.step(1, *example())
    assert list(tmp_path.iterdir()) == []
    client.close()
    second.close()


def test_a_session_that_processes_died_of_is_given_up(tmp_path):
    place = Place(tmp_path)
    client, _, path = _begun(place)
    path.with_suffix(".tries").write_bytes(b"..")
    second, half = place.server()
    assert half.steps == []
    with pytest.raises(RefusedError, match="died 2 times when it went on from its journal"):
        client.step(1, *example())
    client.close()
    second.close()
    third, half = place.server()
    assert half.steps == [], "it is not tried by yet another"
    third.close()


def test_a_verdict_stands_and_so_do_the_nonce_and_the_deadline(tmp_path):
    place = Place(tmp_path)
    client, ticket, _ = _begun(place)
    second, _ = place.server()
    with pytest.raises(RefusedError, match="used before: it opens one session"), place.client(ticket):
        pass
    brief = place.open(second, seconds=0.5)
    second.close()
    third, _ = place.server()
    assert eventually(lambda: third.record_of(brief.claims.id) is not None)
    assert "0.5 s are over" in str(third.record_of(brief.claims.id).failure)
    third.close()
    fourth, _ = place.server()
    assert "0.5 s are over" in str(fourth.record_of(brief.claims.id).failure)
    assert client.step(1, *example()).loss == 2
    client.close()
    fourth.close()


def test_what_is_written_is_within_twice_what_came_up_and_the_file_within_the_half(tmp_path, monkeypatch):
    half_bytes, sizes, files = 3 << 20, [], []

    class Large(Counting):
        async def snapshot(self, session) -> SideState:
            seen = await super().snapshot(session)
            return SideState({**seen.tensors, "weights": torch.zeros(half_bytes // 4)}, {})

    def write(file, kind, content):
        sizes.append(real(file, kind, content))
        files.append(max((path.stat().st_size for path in tmp_path.iterdir()), default=0))
        return sizes[-1]

    real = journal._write
    monkeypatch.setattr(journal, "_write", write)
    place = Place(tmp_path, expected(rows=8, width=1 << 14), half=Large)
    server, half = place.server()
    ticket = place.open(server)
    smashed, labels = example(8, 1 << 14)
    with place.client(ticket) as client:
        for number in range(30):
            client.step(number, smashed, labels)
        client.finish()
    up = server.drop(ticket.claims.id).bytes_up
    assert half.snapshots >= 4
    assert sum(sizes) < 2 * up
    assert max(files) < 2 * half_bytes + 2 * smashed[0].nbytes
    server.close()


def test_a_journal_that_can_t_be_written_refuses_its_session_in_a_sentence(tmp_path):
    place = Place(tmp_path, expected(rows=8, width=1 << 12))
    server, _ = place.server()
    ticket = place.open(server)
    smashed, labels = example(8, 1 << 12)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with place.client(ticket) as client:
        client.step(0, smashed, labels)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
            with pytest.raises(RefusedError, match=r"journal can't be written .*: make room in TMPDIR"):
                client.step(1, smashed, labels)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "can't be written" in str(server.record_of(ticket.claims.id).failure)
    server.close()


def test_a_session_whose_journal_could_not_be_begun_can_be_opened_later(tmp_path):
    place = Place(tmp_path)
    server, _ = place.server()
    office = Office(TicketKey(place.key), place.certificate, "127.0.0.1", place.port)
    ticket = office.issue(run="r", round=1, client="k1", cut=2, open_seconds=9.0, session_seconds=9.0)
    opening = {"claims": asdict(ticket.claims), "issued": time.monotonic()}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        with pytest.raises(EngineError, match=r"can't be written in .* \(File too large\): make room there"):
            server.open(opening)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
    server.open(opening)
    with place.client(ticket) as client:
        assert client.step(0, *example()).loss == 1
    server.close()


def test_a_session_whose_time_is_over_while_it_is_restored_is_refused_and_the_server_starts(tmp_path):
    class Drowsy(Counting):
        async def step(self, session, part, smashed, labels) -> StepResult:
            await asyncio.sleep(0.3)
            return await super().step(session, part, smashed, labels)

    place = Place(tmp_path)
    first, _ = place.server()
    ticket = place.open(first, seconds=2.0)
    with place.client(ticket) as client:
        for number in range(4):
            client.step(number, *example())
        first.close()
        place.half = Drowsy
        time.sleep(1.5)  # it is over in the middle of that, or before
        second, half = place.server()
        assert len(half.steps) < 4
        assert "2 s are over" in str(second.record_of(ticket.claims.id).failure)
    with place.client(place.open(second)) as other:
        assert other.step(0, *example()).loss == 1
    second.close()


def test_replies_that_were_lost_with_the_process_are_made_again_in_windows_too(tmp_path):
    expect = expected(rows=4, micro_batches=4, overlapped=True)
    place = Place(tmp_path, expect, most=0)
    first, _ = place.server()
    ticket = place.open(first)
    (smashed,), labels = example(4)
    planned = list(itertools.islice(expect.parts(), 12))
    with place.client(ticket) as client:
        for batch in range(3):
            for each in planned[4 * batch : 4 * batch + 4]:
                rows = slice(each.part.number % 4, each.part.number % 4 + 1)
                client.send(
                    Part(each.part.number, each.part.weight, each.part.last), (smashed[rows],), labels[rows]
                )
            if batch == 1:
                first.close()
                second, _ = place.server()
            replies = [client.receive() for _ in range(4)]
            assert [reply.loss for reply in replies] == [4 * batch + place_ + 1 for place_ in range(4)]
        client.finish()
    assert second.record_of(ticket.claims.id).parts == 12
    second.close()


def test_a_session_with_a_journal_stays_at_its_cut(tmp_path):
    place = Place(tmp_path)
    server, _ = place.server()
    ticket = place.open(server)
    with pytest.raises(EngineError, match="stays at its cut"):
        server.propose(ticket.claims.id, Move(2, 3, place.expect, 0, 100))
    server.close()


def test_a_part_is_noted_as_it_crossed(tmp_path):
    place = Place(tmp_path)
    client, _, path = _begun(place)
    client.close()
    kinds = dict(JournalFile(path).entries())
    assert kinds[Kind.PART][5] == FrameKind.PART
    assert len(kinds[Kind.PART]) < example()[0][0].nbytes + example()[1].nbytes + 256
    assert json.loads(kinds[Kind.BIND])["attempt"] == 1
