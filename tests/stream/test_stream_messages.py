"""Messages: tensors arrive bit for bit; what does not fit the plan is refused before room is made for it."""

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import schedule
from stream_rig import FUZZ, example, expected, expecting, step_frames
from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.stream.expectation import Expectation, Gate
from cutwater.stream.frames import PREFIX, FrameKind, seal
from cutwater.stream.heads import Outline, read_outline
from cutwater.stream.messages import Assembler, Message, Packer
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.tensors import ALIGNMENT, DTYPES, Memory, TensorHead, TensorSpec, array_in


def deliver(assembler: Assembler, frames: list[bytes]) -> Message:
    *early, last = [assembler.feed(frame) for frame in frames]
    assert early == [None] * len(early)
    assert last is not None
    return last


def assembler_of(expect: Expectation, **how: Any) -> Assembler:
    """The server's, for the first part of a session."""
    assembler = Assembler(expect.at_server, **how)
    assembler.expect(expect.batches[0])
    return assembler


def tensor(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> Tensor:
    raw = torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(seed))
    return (
        raw > 50 if dtype is torch.bool else (raw / 7).to(dtype) if dtype.is_floating_point else raw.to(dtype)
    )


@settings(deadline=None)
@given(
    st.integers(1, 5),
    st.lists(
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(1, 4), max_size=3)), min_size=1, max_size=4
    ),
    st.sampled_from([64, 100, 257, 1 << 20]),
)
def test_tensors_of_every_type_and_shape_arrive_bit_for_bit(
    rows: int, kinds: list[tuple[torch.dtype, list[int]]], size: int
) -> None:
    tensors = [tensor(dtype, (rows, *shape), seed) for seed, (dtype, shape) in enumerate(kinds)]
    labels = torch.arange(rows)
    expect = expecting(tensors, labels, batches=[rows])
    message = deliver(assembler_of(expect), step_frames(expect, 0, tuple(tensors), labels, size))
    for sent, got in zip((*tensors, labels), message.tensors, strict=True):
        assert got.dtype is sent.dtype
        assert torch.equal(got, sent)
        assert got.data_ptr() % ALIGNMENT == 0, "a kernel may give other bits for other alignments"


@pytest.mark.parametrize(
    "odd",
    [
        torch.randn(4, 8, requires_grad=True) * 2,
        torch.randn(8, 4).t(),
        torch.randn(4, 8, dtype=torch.complex64).conj().imag,
        torch.randn(1, 8).expand(4, 8),
        torch.randn(8, 4, dtype=torch.bfloat16, requires_grad=True).t(),
    ],
    ids=["with a gradient", "transposed", "negated when read", "repeated", "disguised"],
)
def test_a_tensor_that_is_not_plain_memory_arrives_as_it_reads(odd: Tensor) -> None:
    labels = torch.arange(4)
    expect = expecting([odd], labels, batches=[4])
    message = deliver(assembler_of(expect), step_frames(expect, 0, (odd,), labels))
    assert torch.equal(message.tensors[0], odd)


def test_a_tensor_that_lies_in_pieces_is_sent_as_it_reads() -> None:
    (smashed,), labels = example(8, 8)
    strided = smashed.t().t()[:, ::2].t().t()
    expect = expecting([strided], labels, batches=[8])
    message = deliver(assembler_of(expect), step_frames(expect, 0, (strided,), labels))
    assert torch.equal(message.tensors[0], strided)


@given(st.integers(0, 20), st.integers(0, 3))
def test_an_outline_is_read_only_as_it_would_be_written(name_length: int, scalars: int) -> None:
    heads = [TensorHead("n" * (name_length + 1), torch.float32, (2, 3))]
    outline = Outline.of(heads, [f"s{k}" for k in range(scalars)])
    assert (PREFIX + len(outline.head([0.0] * scalars))) % 16 == 0
    assert read_outline(outline.written).heads == tuple(heads)
    longer = len(outline.written) - 2 + 16
    with pytest.raises(RefusedError, match="not written as this release writes it"):
        read_outline(longer.to_bytes(2, "little") + outline.written[2:] + bytes(16))


def test_scalars_arrive_exactly() -> None:
    expect = expected()
    scalars = {"loss": 0.1 + 0.2, "server_seconds": 1e-300}
    packed = Packer(expect.at_client).pack(FrameKind.REPLY, 7, example()[0], scalars, rows=4)
    assembler = Assembler(expect.at_client)
    assembler.expect(4)
    message = deliver(assembler, list(packed.frames(64)))
    assert (message.kind, message.number, message.scalars) == (FrameKind.REPLY, 7, scalars)


def test_a_power_of_two_of_smashed_data_and_its_labels_are_one_frame() -> None:
    smashed, labels = (torch.zeros(64, 4096),), torch.zeros(64).long()
    expect = expecting(smashed, labels, batches=[64])
    assert len(step_frames(expect, 0, smashed, labels)) == 1


def test_of_several_frames_the_first_is_small_so_that_nearly_all_of_a_part_is_timed() -> None:
    smashed, labels = (torch.rand(64, 3 * 4096),), torch.zeros(64).long()
    expect = expecting(smashed, labels, batches=[64])
    first, *others = step_frames(expect, 0, smashed, labels)
    assert len(first) < sum(map(len, others)) / 32
    assert torch.equal(deliver(assembler_of(expect), [first, *others]).tensors[0], smashed[0])


def test_memory_is_used_again_once_nobody_holds_it() -> None:
    expect = expected()
    assembler = assembler_of(expect)
    frames = step_frames(expect, 0, *example())
    first = deliver(assembler, frames).tensors[0].data_ptr()
    held = deliver(assembler, frames)
    assert held.tensors[0].data_ptr() == first
    before = held.tensors[0].clone()
    assembler.expect(3)
    other = deliver(assembler, step_frames(expect, 0, *example(3)))
    assert other.tensors[0].data_ptr() != first
    assert torch.equal(held.tensors[0], before)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), max_size=8),
    st.sampled_from([64, 1 << 20]),
)
def test_room_made_ahead_changes_nothing_that_arrives(
    messages: list[tuple[int, bool, bool]], size: int
) -> None:
    """Whether the next message is like the last or not, and whoever still holds an earlier one."""
    expect = expected()
    assembler = assembler_of(expect)
    held: list[tuple[Tensor, Tensor]] = []
    for step, (rows, ahead, hold) in enumerate(messages):
        assembler.expect(rows)
        if ahead:
            assembler.make_room()
        (smashed,), labels = example(rows)
        message = deliver(assembler, step_frames(expect, step, (smashed + step,), labels, size))
        assert torch.equal(message.tensors[0], smashed + step)
        assert torch.equal(message.tensors[1], labels)
        if hold:
            held.append((message.tensors[0], smashed + step))
    assert all(torch.equal(kept, sent) for kept, sent in held)


def test_room_made_ahead_is_where_the_next_message_comes_to_lie() -> None:
    expect = expected()
    assembler = assembler_of(expect)
    frames = step_frames(expect, 0, *example())
    first = deliver(assembler, frames).tensors[0].data_ptr()
    assembler.make_room()
    assembler.make_room()
    assert assembler._ahead is not None
    tensor = assembler._ahead.tensors[0]
    message = deliver(assembler, frames)
    assert message.tensors[0] is tensor
    assert tensor.data_ptr() == first


def test_a_borrowed_message_of_one_frame_lies_in_its_frame_and_of_several_does_not() -> None:
    expect, (smashed, labels) = expected(), example()
    (frame,) = step_frames(expect, 0, smashed, labels)
    place = np.frombuffer(frame, np.uint8).__array_interface__["data"][0]
    borrowed = deliver(assembler_of(expect, borrow=True), [frame])
    for sent, got in zip((*smashed, labels), borrowed.tensors, strict=True):
        assert torch.equal(got, sent)
        assert place <= got.data_ptr() < place + len(frame)
    several = deliver(assembler_of(expect, borrow=True), step_frames(expect, 0, smashed, labels, 64))
    assert torch.equal(several.tensors[0], smashed[0])
    assert several.tensors[0].data_ptr() % ALIGNMENT == 0


def test_numbers_that_would_lie_across_words_are_copied() -> None:
    head = TensorHead("x", torch.float32, (3,))
    odd = memoryview(b"\0" + np.arange(3, dtype=np.float32).tobytes())[1:]
    array = array_in(odd, head, 0)
    assert array.flags.aligned
    assert array.tolist() == [0.0, 1.0, 2.0]


def test_memory_held_by_any_view_is_left_alone() -> None:
    memory = Memory()
    room = memory.take(100)
    view = torch.from_numpy(np.frombuffer(room, np.uint8)[10:20])
    address = view.data_ptr()
    del room
    other = np.frombuffer(memory.take(100), np.uint8)
    assert not other.ctypes.data <= address < other.ctypes.data + 100


EXPECT = expecting([torch.zeros(4, 3, 2)], torch.zeros(4).long(), batches=[4] * 9, classes=10)


def forged(
    heads: list[tuple[str, torch.dtype, tuple[int, ...]]], payload: bytes | None = None, **fields: Any
) -> bytes:
    """A frame with a right checksum that says whatever it likes."""
    outline = Outline.of([TensorHead(*head) for head in heads], ())
    payload = bytes(outline.total) if payload is None else payload
    total = fields.pop("total", len(payload))
    kind, step, offset = (
        fields.pop(name, default) for name, default in (("kind", FrameKind.PART), ("step", 0), ("offset", 0))
    )
    return seal(kind, step, total, offset, fields.pop("head", outline.head(())), [payload])


F32, I64 = torch.float32, torch.int64
GOOD = [("smashed.0", F32, (4, 3, 2)), ("labels", I64, (4,))]
SMALL = [("smashed.0", F32, (1, 3, 2)), ("labels", I64, (1,))]


def test_what_the_plan_expects_is_accepted() -> None:
    assembler = assembler_of(EXPECT)
    assert assembler.feed(forged(GOOD)) is not None
    with pytest.raises(RefusedError, match="has 1 samples, but this part of the mini-batch has 4"):
        assembler.feed(forged(SMALL))
    assembler.expect(1)
    assert assembler.feed(forged(SMALL)) is not None


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ([("smashed.1", F32, (4, 3, 2)), GOOD[1]], "were expected"),
        ([GOOD[1], GOOD[0]], "in this order"),
        ([GOOD[0]], "were expected"),
        ([], "were expected"),
        ([SMALL[0], SMALL[0]], "a name of its own"),
        ([SMALL[0], SMALL[1], SMALL[1]], "a name of its own"),
        ([("smashed.0", torch.int32, (4, 3, 2)), GOOD[1]], "type torch.int32"),
        ([("smashed.0", F32, (4, 3, 1)), GOOD[1]], "shape"),
        ([("smashed.0", F32, (4, 1, 2)), GOOD[1]], "shape"),
        ([("smashed.0", F32, (4, 6)), GOOD[1]], "shape"),
        ([("smashed.0", F32, (4, 2, 3)), GOOD[1]], "shape"),
        ([("smashed.0", F32, (4, 3, 2, 1)), GOOD[1]], "shape"),
        ([("smashed.0", F32, ()), GOOD[1]], "shape"),
        ([("smashed.0", F32, (0, 3, 2)), ("labels", I64, (0,))], "has 0 samples"),
        ([("smashed.0", F32, (4, 0, 2)), GOOD[1]], "shape"),
        ([("smashed.0", F32, (1, 3, 2)), GOOD[1]], "the same for all"),
        ([GOOD[0], ("labels", I64, (3,))], "the same for all"),
        ([GOOD[0], ("labels", I64, (4, 1))], "shape"),
    ],
    ids=str,
)
def test_other_names_types_and_shapes_are_refused(heads: list[Any], words: str) -> None:
    with pytest.raises(RefusedError, match=words) as refused:
        assembler_of(EXPECT).feed(forged(heads))
    assert refused.value.status is Status.INVALID_ARGUMENT


OUTLINE = Outline.of([TensorHead(*head) for head in GOOD], ())


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (forged(GOOD, bytes(150)), "the tensors listed have"),
        (forged(GOOD, bytes(10)), "the tensors listed have"),
        (forged(GOOD, bytes(161), total=160), "more than the 160 bytes"),
        (forged(GOOD, offset=5), "begins at byte 5 of the payload, but must at 0"),
        (forged(GOOD, kind=FrameKind.REPLY), "REPLY is not expected"),
        (forged([], kind=FrameKind.WELCOME), "WELCOME is not expected"),
        (forged(GOOD, head=b""), "0 bytes, but needs at least"),
        (forged(GOOD, head=b"\xff\xff\x01"), "middle of a field"),
        (forged(GOOD, head=OUTLINE.head(()) + bytes(8)), "8 bytes for 0 scalars"),
        (forged(GOOD, head=b"\x04\x00\x01\x01a\x63"), "middle of a field"),
        (forged(GOOD, head=b"\x05\x00\x01\x01a\x63\x00"), "unknown type code 99"),
        (forged(GOOD, head=b"\x05\x00\x01\x01a\x00\x63"), "99 dimensions"),
        (forged(GOOD, head=b"\x05\x00\x01\x01\xff\x00\x00"), "not UTF-8"),
        (forged(GOOD, head=b"\x05\x00\x00\x01a\x01a" + bytes(16)), "a scalar twice"),
    ],
)
def test_frames_that_contradict_themselves_are_refused(frame: bytes, words: str) -> None:
    with pytest.raises(RefusedError, match=words) as refused:
        assembler_of(EXPECT).feed(frame)
    assert refused.value.status is Status.INVALID_ARGUMENT


def test_more_than_the_plan_allows_is_refused_as_too_much() -> None:
    heads = [("smashed.0", F32, (2**30, 3, 2)), ("labels", I64, (2**30,))]
    for frame in (
        forged(heads, b"", total=2**62),
        forged([("smashed.0", F32, (5, 3, 2)), ("labels", I64, (5,))]),
    ):
        with pytest.raises(RefusedError, match="the plan allows") as refused:
            assembler_of(EXPECT).feed(frame)
        assert refused.value.status is Status.RESOURCE_EXHAUSTED


def test_nothing_is_allocated_for_what_is_refused() -> None:
    """The plan allows 64 MiB; what has another shape, but fits these, costs nothing."""
    wide = expecting([torch.zeros(2, 1).expand(2, 1 << 23)], torch.zeros(2).long(), batches=[2])
    heads = [("smashed.0", F32, (2, 1 << 22, 2)), ("labels", I64, (2,))]
    outline = Outline.of([TensorHead(*head) for head in heads], ())
    frame = seal(FrameKind.PART, 0, outline.total, 0, outline.head(()), [b"x"])
    assembler = assembler_of(wide)
    tracemalloc.start()
    try:
        with pytest.raises(RefusedError):
            assembler.feed(frame)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_frames_that_do_not_follow_each_other_are_refused() -> None:
    expect = expected(4, 64)
    frames = step_frames(expect, 0, *example(4, 64), size=256)
    other = step_frames(expect, 1, *example(4, 64), size=256)
    for broken in ([frames[0], frames[2]], [frames[0], frames[0]], [frames[0], other[1]], [frames[1]]):
        assembler = assembler_of(expect)
        with pytest.raises(RefusedError) as refused:
            deliver(assembler, broken)
        assert refused.value.status is Status.INVALID_ARGUMENT
    assert deliver(assembler, frames).number == 0, "a refusal leaves nothing behind"


@pytest.mark.parametrize("label", [-1, 10, 2**40, -(2**63)])
@pytest.mark.parametrize("shape", [(4,), (2, 3), (300,), (20, 20)])
def test_labels_out_of_range_are_refused(label: int, shape: tuple[int, ...]) -> None:
    smashed, labels = torch.ones(shape[0], 2), torch.full(shape, 9)
    expect = expecting([smashed], labels, batches=[shape[0]], classes=10)
    assert deliver(assembler_of(expect), step_frames(expect, 0, (smashed,), labels)).number == 0
    labels.view(-1)[3] = label
    with pytest.raises(RefusedError, match=rf"'labels' holds values.*{label}.* 0 to 9") as refused:
        deliver(assembler_of(expect), step_frames(expect, 0, (smashed,), labels))
    assert refused.value.status is Status.INVALID_ARGUMENT


def test_booleans_that_are_neither_are_refused() -> None:
    expect = expecting([torch.zeros(2, 2), torch.zeros(2, 2).bool()], torch.zeros(2).long(), batches=[2])
    heads = [("smashed.0", F32, (2, 2)), ("smashed.1", torch.bool, (2, 2)), ("labels", I64, (2,))]
    payload = bytearray(Outline.of([TensorHead(*head) for head in heads], ()).total)
    assert assembler_of(expect).feed(forged(heads, bytes(payload))) is not None
    payload[65] = 2
    with pytest.raises(RefusedError, match=r"smashed\.1"):
        assembler_of(expect).feed(forged(heads, bytes(payload)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scalars_that_are_no_numbers_are_refused(value: float) -> None:
    def gates(rows: int) -> dict[FrameKind, Gate]:
        return {FrameKind.REPLY: Gate()}

    frames = list(Packer(gates).pack(FrameKind.REPLY, 0, (), {"loss": value}).frames(64))
    assembler = Assembler(gates)
    assembler.expect(1)
    with pytest.raises(RefusedError, match="must be finite"):
        assembler.feed(frames[0])


def test_a_sender_is_held_to_the_plan_too() -> None:
    packer = Packer(EXPECT.at_server)
    with pytest.raises(RefusedError, match="shape"):
        packer.pack(FrameKind.PART, 0, (torch.zeros(4, 3, 1), torch.zeros(4).long()), rows=4)
    with pytest.raises(RefusedError, match="1 tensors are to be sent, but the plan has 2"):
        packer.pack(FrameKind.PART, 0, (torch.zeros(4, 3, 2),), rows=4)
    with pytest.raises(RefusedError, match="has 4 samples, but this part of the mini-batch has 3"):
        packer.pack(FrameKind.PART, 0, (torch.zeros(4, 3, 2), torch.zeros(4).long()), rows=3)


def test_broken_messages_are_refused_one_way_or_accepted_whole(
    record_property: Callable[[str, object], None],
) -> None:
    """Frames of real steps, mixed, repeated, flipped and cut: what comes out is what someone sent."""
    rng = schedule("messages")
    expect = expected(4, 32)
    sent = {seed: example(4, 32) for seed in range(3)}
    runs = {seed: step_frames(expect, seed, *values, size=128) for seed, values in sent.items()}
    assembler, reasons, inputs = assembler_of(expect), set(), 0
    while inputs < FUZZ // 4:
        frames = list(runs[rng.randrange(3)])
        for _ in range(rng.randrange(3)):
            place = rng.randrange(len(frames))
            match rng.randrange(4):
                case 0:
                    frames[place] = rng.choice(runs[rng.randrange(3)])
                case 1:
                    del frames[place]
                case 2:
                    broken = bytearray(frames[place])
                    broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
                    frames[place] = bytes(broken)
                case 3:
                    frames.insert(place, frames[place])
            if not frames:
                break
        for frame in frames:
            inputs += 1
            try:
                message = assembler.feed(frame)
            except RefusedError as refused:
                reasons.add(refused.status)
                continue
            if message is not None:
                (smashed,), labels = sent[message.number]
                assert torch.equal(message.tensors[0], smashed)
                assert torch.equal(message.tensors[1], labels)
    assert reasons == {Status.INVALID_ARGUMENT}
    record_property("inputs", inputs)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TensorSpec("", F32, (1,)), "1 to 255 bytes"),
        (lambda: TensorSpec("a", torch.complex64, (1,)), "complex64"),
        (lambda: TensorSpec("a", F32, (0,)), "at least 1"),
        (lambda: TensorSpec("a", F32, (1,) * 8), "dimensions"),
        (lambda: expecting([], torch.zeros(1), batches=[1]), "at least one smashed"),
        (lambda: expecting([torch.zeros(1, 1)], torch.zeros(1), batches=[]), "batches is 0"),
        (lambda: expecting([torch.zeros(1, 1)], torch.zeros(1), batches=[2, -1]), "batches is -1"),
        (
            lambda: expecting([torch.zeros(1, 1)], torch.zeros(1), batches=[1], micro_batches=0),
            "micro_batches is 0",
        ),
    ],
)
def test_expectations_that_make_no_sense_are_refused_by_name(make: Any, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        make()


def test_what_can_be_held_in_references_is_what_python_counts() -> None:
    """The reuse of memory rests on this: an array over a memoryview holds the buffer, not the view."""
    buffer = np.empty(64, np.uint8)
    before = sys.getrefcount(buffer)
    array = np.ndarray((4,), np.float32, buffer.data[0:16], 0)
    assert sys.getrefcount(buffer) > before
    del array
    assert sys.getrefcount(buffer) == before


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 9), st.booleans())
def test_a_plan_lists_the_parts_that_training_makes(
    batches: list[int], micro_batches: int, overlapped: bool
) -> None:
    expect = expecting(*example(), batches=batches, micro_batches=micro_batches, overlapped=overlapped)
    planned = list(expect.parts())
    assert [each.part.number for each in planned] == list(range(len(planned)))
    assert sum(each.rows for each in planned) == sum(batches)
    assert sum(each.part.weight for each in planned) == pytest.approx(len(batches))
    assert sum(each.part.last for each in planned) == len(batches)
    widths, open_ = [], 0
    for each in planned:
        open_ = 1 if each.opens else open_ + 1
        widths.append(open_)
    assert max(widths) == expect.window == (min(micro_batches, max(batches)) if overlapped else 1)
