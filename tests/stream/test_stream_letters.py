"""Letters of a lease: each arrives once, in order, whatever becomes of connections."""

import time
from contextlib import suppress
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import schedule
from stream_rig import FUZZ

from cutwater.stream import letters
from cutwater.stream.frames import seal, unseal
from cutwater.stream.letters import Inbox, Outbox, Place
from cutwater.stream.refusal import RefusedError, Status


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(letters, "CHUNK", 7)
    monkeypatch.setattr(letters, "TOLD", 20)


def place_in(frame):
    return Place(unseal(frame).number, unseal(frame).offset)


def connected(outbox, inbox):
    """A connection opens: the receiver says how far it has come."""
    inbox.begin_anew()
    outbox.told(place_in(inbox.tell()), opening=True)


@given(
    bodies=st.lists(st.binary(max_size=60), max_size=6),
    breaks=st.lists(st.integers(0, 12), max_size=12),
    deaf=st.booleans(),
)
def test_letters_arrive_once_and_in_order_over_connections_that_break(bodies, breaks, deaf):
    outbox, inbox, arrived, sent = Outbox(time.monotonic), Inbox(60), [], 0
    numbers = [outbox.post(body) for body in bodies]
    for frames in (*breaks, 1_000):
        connected(outbox, inbox)
        for _ in range(frames):
            frame = outbox.frame()
            if frame is None:
                break
            sent += len(unseal(frame).part)
            letter = inbox.feed(unseal(frame))
            if letter is not None:
                arrived.append(letter)
            told = inbox.tell() if letter is not None or inbox.due else None
            # What is said may be lost with the connection that it is said over.
            if told is not None and not (deaf and frames < 1_000):
                outbox.told(place_in(told))
            if told is not None and deaf and frames < 1_000:
                break
    assert [letter.body for letter in arrived] == bodies
    assert [letter.number for letter in arrived] == numbers
    assert sent == sum(map(len, bodies)), "no byte that has arrived is sent again"
    assert set(outbox.took) == set(numbers)
    assert all(seconds >= 0 for seconds in outbox.took.values())


def frames_of(*bodies):
    outbox = Outbox()
    for body in bodies:
        outbox.post(body)
    connected(outbox, Inbox(1 << 20))
    return [unseal(outbox.frame()) for _ in range(2)]


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (lambda head, chunk: [chunk], "another length than its head says"),
        (lambda head, chunk: [head, chunk._replace(offset=3)], "byte 3 of letter 1 came"),
        (lambda head, chunk: [head, chunk._replace(number=2)], "of letter 2 came"),
        (lambda head, chunk: [head, chunk._replace(total=6)], "another length than its head says"),
        (lambda head, chunk: [head._replace(head=memoryview(b"short"))], "another digest"),
        (lambda head, chunk: [head, head._replace(head=memoryview(bytes(32)))], "another digest"),
        (lambda head, chunk: [head, chunk._replace(part=memoryview(b"liar!"))], "not what its digest says"),
        (lambda head, chunk: [head._replace(total=1 << 40)], "at most 64 are expected"),
    ],
)
def test_what_is_no_part_of_the_next_letter_is_refused(frame, sentence):
    *good, bad = frame(*frames_of(b"hello"))
    inbox = Inbox(64)
    for one in good:
        assert inbox.feed(one) is None
    with pytest.raises(RefusedError, match=sentence):
        inbox.feed(bad)


@pytest.mark.parametrize("place", [Place(0, 0), Place(3, 0), Place(2, 5)])
def test_what_can_not_have_arrived_is_refused(place):
    outbox = Outbox()
    outbox.post(b"hello")
    with pytest.raises(RefusedError, match="is said to"):
        outbox.told(place)


def test_broken_frames_of_a_lease_are_refused_one_way_and_letters_arrive_whole(record_property):
    """Heads, chunks and HAVEs: altered on their way, or sealed by somebody who lies about their numbers."""
    rng, inputs, arrived, refused = schedule("lease frames"), 0, 0, set()
    while inputs < FUZZ // 4:
        bodies = [rng.randbytes(rng.randrange(60)) for _ in range(3)]
        outbox, inbox, came = Outbox(), Inbox(60), []
        for body in bodies:
            outbox.post(body)
        connected(outbox, inbox)
        while len(came) < len(bodies):
            inputs += 1
            frame = outbox.frame()
            if frame is None:
                # A letter was said to be longer than it is: both ends wait, until the connection is over.
                connected(outbox, inbox)
                continue
            try:
                letter = inbox.feed(unseal(altered(rng, frame) if rng.random() < 0.3 else frame))
            except RefusedError as error:
                # The connection is over, and another begins where the receiver stands.
                refused.add(error.status)
                connected(outbox, inbox)
                continue
            came += [letter.body] if letter is not None else []
            if letter is not None or inbox.due:
                inputs += 1
                with suppress(RefusedError):  # whoever lies about what it has does without it
                    deepcopy(outbox).told(place_in(lying(rng, inbox.tell())))
                outbox.told(place_in(inbox.tell()))
        assert came == bodies, "all of them, whole, once and in order"
        assert outbox.frame() is None
        arrived += len(came)
    assert refused <= {Status.INVALID_ARGUMENT, Status.RESOURCE_EXHAUSTED}
    record_property("inputs", inputs)
    record_property("letters that arrived whole meanwhile", arrived)


def altered(rng, frame):
    """A frame that was damaged, or one with a right checksum that says something else."""
    if rng.random() < 0.5:
        broken = bytearray(frame)
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        return bytes(broken)
    return lying(rng, frame)


def lying(rng, frame):
    """Sealed again with other numbers."""
    seen = unseal(frame)
    numbers = [seen.number, seen.total, seen.offset]
    place = rng.randrange(3)
    numbers[place] = rng.choice([0, 1, numbers[place] + 1, max(numbers[place] - 1, 0), 2**40, 2**64 - 1])
    return seal(seen.kind, *numbers, bytes(seen.head), (seen.part,))


def test_letters_are_timed_where_there_is_a_clock_and_nothing_is_kept_otherwise():
    outboxes = Outbox(iter([1.0, 3.5]).__next__), Outbox()
    for outbox in outboxes:
        assert outbox.post(b"") == 1
        outbox.frame()
        outbox.told(Place(2, 0))
    assert [(outbox.took, outbox.arrived) for outbox in outboxes] == [({1: 2.5}, {1: 3.5}), ({}, {})]
