"""Frames: what is sealed comes out as it was, and nothing else comes out."""

import random
import zlib
from collections.abc import Callable

import pytest
from hypothesis import example as case
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import schedule
from stream_rig import FUZZ

from cutwater.stream.frames import MAX_HEAD, PREFIX, FrameKind, seal, unseal
from cutwater.stream.refusal import RefusedError, Status

U64 = st.integers(0, 2**64 - 1)
FRAMES = st.builds(
    seal, st.sampled_from(FrameKind), U64, U64, U64, st.binary(max_size=40), st.lists(st.binary(max_size=90))
)
COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
"""The first two bytes of gzip, and of zlib at each of its levels (RFC 1952, RFC 1950)."""


@settings(deadline=None)
@given(st.sampled_from(FrameKind), U64, U64, U64, st.binary(max_size=40), st.lists(st.binary(max_size=90)))
def test_a_frame_comes_out_as_it_was_sealed(
    kind: FrameKind, number: int, total: int, offset: int, head: bytes, parts: list[bytes]
) -> None:
    frame = unseal(seal(kind, number, total, offset, head, parts))
    assert (frame.kind, frame.number, frame.total, frame.offset) == (kind, number, total, offset)
    assert (bytes(frame.head), bytes(frame.part)) == (head, b"".join(parts))


@settings(deadline=None)
@given(FRAMES, st.data())
def test_a_truncated_frame_is_refused(frame: bytes, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(RefusedError) as refused:
        unseal(frame[:length])
    assert refused.value.status is Status.INVALID_ARGUMENT


def test_every_single_flipped_bit_is_found() -> None:
    frame = seal(FrameKind.PART, 5, 64, 0, b"head", [b"some payload", b"more of it"])
    for bit in range(8 * len(frame)):
        broken = bytearray(frame)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RefusedError) as refused:
            unseal(bytes(broken))
        assert refused.value.status is Status.INVALID_ARGUMENT


@settings(deadline=None)
@given(st.binary(max_size=200))
@case(b"")
@case(b"CUTW")
@case(b"CUTW\x02" + bytes(100))
def test_bytes_that_nobody_sealed_are_refused(noise: bytes) -> None:
    with pytest.raises(RefusedError):
        unseal(noise)


def test_many_broken_frames_are_refused_and_none_is_accepted(
    record_property: Callable[[str, object], None],
) -> None:
    """Flips, cuts, splices, swaps and noise, of all kinds of frames; set CUTWATER_FUZZ for more of them."""
    rng = schedule("frames")
    whole = [
        seal(
            rng.choice(list(FrameKind)),
            rng.getrandbits(8),
            rng.getrandbits(9),
            rng.getrandbits(9),
            rng.randbytes(9),
            [rng.randbytes(n)],
        )
        for n in (0, 1, 15, 16, 17, 64, 240, 241, 1000)
    ]
    wanted, refusals = FUZZ // 2, set()
    for _ in range(wanted):
        broken = _break(rng, whole)
        while broken in whole:  # two faults that undo each other are none
            broken = _break(rng, whole)
        with pytest.raises(RefusedError) as refused:
            unseal(broken)
        # What begins like something compressed is called that, and not read any further either.
        refusals.add((refused.value.status, broken.startswith(COMPRESSED)))
    assert refusals <= {(Status.INVALID_ARGUMENT, False), (Status.RESOURCE_EXHAUSTED, True)}
    record_property("inputs", wanted)


def _break(rng: random.Random, whole: list[bytes]) -> bytes:
    frame = bytearray(rng.choice(whole))
    how = rng.randrange(5)
    if how == 0:
        for _ in range(rng.randint(1, 3)):
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    elif how == 1:
        del frame[rng.randrange(len(frame)) :]
    elif how == 2:
        frame += rng.randbytes(rng.randint(1, 20))
    elif how == 3:
        other = rng.choice(whole)
        place = rng.randrange(len(frame))
        frame[place:] = other[place:]
    else:
        start = rng.randrange(len(frame))
        frame[start : start + 8] = rng.randbytes(8)
    return bytes(frame)


def test_another_version_is_refused_by_name() -> None:
    frame = bytearray(seal(FrameKind.PART, 0, 0, 0, b"", []))
    frame[4] = 9
    with pytest.raises(RefusedError, match="version 9, but this release speaks 2"):
        unseal(bytes(frame))


@pytest.mark.parametrize("wbits", [31, 15], ids=["gzip", "deflate"])
def test_compressed_bytes_are_refused_without_inflating_them(wbits: int) -> None:
    squeezed = zlib.compressobj(9, zlib.DEFLATED, wbits)
    bomb = squeezed.compress(bytes(10 << 20)) + squeezed.flush()
    with pytest.raises(RefusedError, match="compressed") as refused:
        unseal(bomb)
    assert refused.value.status is Status.RESOURCE_EXHAUSTED


def test_a_head_that_is_longer_than_its_frame_is_refused() -> None:
    import xxhash

    first = b"CUTW\x02\x02" + MAX_HEAD.to_bytes(2, "little")
    rest = bytes(PREFIX - 16)
    checksum = xxhash.xxh3_64_intdigest(rest, int.from_bytes(first, "little"))
    with pytest.raises(RefusedError, match="a head ends within its frame"):
        unseal(first + checksum.to_bytes(8, "little") + rest)
