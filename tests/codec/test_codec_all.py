"""What holds for every codec: its size, what it refuses, and how it is found by name."""

import subprocess
import sys

import numpy as np
import pytest
from codec_ends import transfer
from hypothesis import given, settings
from hypothesis import strategies as st

import cutwater.codec
from cutwater.base.errors import CodecError, PlanError
from cutwater.codec import (
    CODECS,
    Size,
    bit_loops,
    decode_checked,
    encode_checked,
    find_codec,
    float_loops,
    quantise_loops,
)

SHAPES = st.lists(st.integers(0, 7), max_size=4).map(tuple)
CODEC = st.sampled_from(CODECS)


def drawn(shape, seed):
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return values * np.random.default_rng(seed + 1).integers(0, 2, shape).astype(np.float32)


@settings(deadline=None, max_examples=400)
@given(CODEC, st.integers(0, 5), SHAPES, st.integers(0, 100))
def test_what_is_made_takes_what_was_declared(name, samples, shape, seed):
    codec, values = find_codec(name, keep=0.3), drawn((samples, *shape), seed)
    data, declared = codec.encode(values, seed), codec.size(shape)
    assert declared.sample % 8 == declared.message % 8 == 0
    bits = declared.bits(samples)
    assert bits == declared.sample * samples + declared.message
    assert 8 * data.size <= bits if codec.at_most else 8 * data.size == bits
    found = codec.decode(data, values.shape)
    assert found.shape == values.shape
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert not codec.lossless or found.tobytes() == values.tobytes()
    # What is read from a network may be locked, or begin anywhere.
    locked = np.frombuffer(b"\0" + data.tobytes(), np.uint8)[1:]
    assert codec.decode(locked, values.shape).tobytes() == found.tobytes()


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("fp32", (3, 5, 5), Size(2400, 0)),
        ("lossless", (3, 5, 5), Size(2400, 64)),
        ("bf16", (3, 5, 5), Size(1200, 0)),
        ("fp16", (), Size(16, 0)),
        ("int8", (3, 5, 5), Size(600, 96)),
        ("int8", (3, 5, 5, 2), Size(1200, 96)),
        ("int8", (3, 5), Size(120 + 32, 0)),
        ("int8", (15,), Size(120 + 32, 0)),
        ("int8", (), Size(32, 0)),
        ("int4", (3, 5, 5), Size(304, 96)),
        ("int4", (15,), Size(64 + 32, 0)),
        ("int4", (), Size(32, 0)),
        ("topk", (3, 5, 5), Size(8 * 32 + 56, 0)),
    ],
)
def test_sizes(name, shape, size):
    assert find_codec(name).size(shape) == size


def decoded(codec, sent, shape):
    """What the bytes are decoded to; None where they are refused, in a sentence on the tensor."""
    try:
        return codec.decode(np.frombuffer(sent, np.uint8), shape)
    except CodecError as error:
        sentence = str(error)
    assert sentence.startswith("the tensor")
    return None


@settings(deadline=None, max_examples=600)
@given(CODEC, st.integers(0, 3), SHAPES, st.integers(0, 100), st.data())
def test_whatever_comes_is_decoded_or_refused_in_a_sentence(name, samples, shape, seed, data):
    codec, shape = find_codec(name, keep=0.3), (samples, *shape)
    held = bytearray(codec.encode(drawn(shape, seed), seed).tobytes())
    for _ in range(data.draw(st.integers(0, 3))):
        if held:
            held[data.draw(st.integers(0, len(held) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(held)), st.integers(0, len(held))))
    sent = bytes(held[:cut]) + data.draw(st.one_of(st.just(b""), st.binary(max_size=9)))
    found = decoded(codec, sent, shape)
    if found is not None:
        assert found.shape == shape
        assert found.dtype == np.float32
        assert len(sent) <= codec.size(shape[1:]).bits(samples) // 8


@settings(deadline=None, max_examples=300)
@given(CODEC, st.integers(0, 3), SHAPES, st.binary(max_size=60))
def test_noise_is_decoded_or_refused_in_a_sentence(name, samples, shape, sent):
    decoded(find_codec(name), sent, (samples, *shape))


@pytest.mark.parametrize("name", CODECS)
def test_what_is_no_tensor_is_refused(name):
    codec = find_codec(name)
    for values in (np.zeros((2, 3)), np.zeros((), np.float32), [[1.0]], np.zeros((2, 3), np.int32)):
        with pytest.raises(CodecError, match=r"^the tensor is .*, but codecs take float32 arrays"):
            codec.encode(values, 0)
    for data in (np.zeros(24, np.int8), np.zeros((2, 12), np.uint8), bytes(24)):
        with pytest.raises(CodecError, match=r"^the tensor comes as .*, but codecs read arrays of uint8"):
            codec.decode(data, (2, 3))
    for shape in ((), (2, -3)):
        with pytest.raises(CodecError, match=r"^the tensor can't have shape"):
            codec.decode(np.zeros(24, np.uint8), shape)


@pytest.mark.parametrize("name", CODECS)
def test_what_is_encoded_is_left_as_it_is(name):
    values = drawn((3, 4, 5, 5), 0)
    kept = values.copy()
    transfer(find_codec(name), values, 0)
    assert values.tobytes() == kept.tobytes()


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(CodecError, match="there is no codec 'int9': did you mean 'int8'"):
        find_codec("int9")
    with pytest.raises(CodecError, match=r"no codec 'zip': known are bf16, .*; your own is package\.module:"):
        find_codec("zip")


def test_names_are_those_of_the_codecs():
    assert [find_codec(name).name for name in CODECS] == list(CODECS)
    assert [name for name in CODECS if find_codec(name).lossless] == ["fp32", "lossless"]
    assert [name for name in CODECS if find_codec(name).at_most] == ["lossless"]


class Own:
    """A codec of a user's own: half of each number, and as many wrong answers as a test asks for."""

    name, lossless, at_most = "own", False, False

    def __init__(self, **wrong):
        self.__dict__.update(wrong)

    def size(self, shape):
        return Size(16 * int(np.prod(shape)), 0)

    def encode(self, values, seed):
        return values.astype(np.float16).reshape(-1).view(np.uint8)

    def decode(self, data, shape):
        return data.view(np.float16).astype(np.float32).reshape(shape)


def raises(error):
    def raising(*_):
        raise error

    return raising


VALUES = np.float32([[1, 2, 3], [4, 5, 6]])


def test_a_codec_of_ones_own_is_found_by_name():
    own = find_codec(f"{__name__}:Own")
    assert isinstance(own, Own)
    assert (transfer(own, VALUES, 0) == VALUES).all()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"size": lambda _: Size(48, 8)}, "became 96 bits by codec 'own', which declares 104 for shape"),
        ({"size": lambda _: Size(40, 0)}, "became 96 bits by codec 'own', which declares 80 for shape"),
        (
            {"size": lambda _: Size(40, 0), "at_most": True},
            "became 96 bits by codec 'own', which declares at most 80",
        ),
        ({"size": lambda _: Size(12, 0)}, r"size Size\(sample=12, .* whole numbers of bytes"),
        ({"size": lambda _: 48}, "says codec 'own', the size 48, but that must be a Size"),
        ({"size": lambda _: Size(48.0, 0)}, "but that must be a Size"),
        ({"size": raises(KeyError("w"))}, r"can't be measured by codec 'own' \(KeyError: 'w', at .*\)"),
        ({"encode": lambda *_: b"123"}, "became bytes by codec 'own', but must become uint8"),
        ({"encode": lambda v, _: v}, r"became float32 of shape \(2, 3\) by codec 'own', but must"),
        (
            {"encode": raises(ValueError("no\nway"))},
            r"can't be encoded by codec 'own' \(ValueError: no, at .*\): mend",
        ),
        ({"encode": raises(CodecError("the tensor is odd"))}, "^smashed data is odd$"),
        ({"encode": raises(CodecError("not today"))}, "^smashed data: not today$"),
    ],
)
def test_an_own_codec_that_makes_what_it_does_not_declare_is_refused(wrong, said):
    with pytest.raises(CodecError, match=said) as caught:
        encode_checked(Own(**wrong), VALUES, 0, "smashed data")
    assert str(caught.value).startswith("smashed data")
    with pytest.raises(CodecError):
        transfer(Own(**wrong), VALUES, 0)


def test_an_own_codec_may_make_less_than_it_declares_at_most():
    own = Own(size=lambda _: Size(640, 8), at_most=True)
    assert encode_checked(own, VALUES, 0, "smashed data").size == 12


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda data, shape: np.zeros(shape), r"became float64 of shape \(2, 3\) by codec 'own', but must"),
        (
            lambda data, shape: np.zeros(6, np.float32),
            r"float32 of shape \(6,\) .* become float32 of shape \(2, 3\)",
        ),
        (lambda data, shape: None, "became NoneType by codec 'own'"),
        (raises(IndexError()), r"can't be decoded by codec 'own' \(IndexError, at .*\)"),
    ],
)
def test_an_own_codec_that_decodes_something_else_is_refused(wrong, said):
    own = Own(decode=wrong)
    with pytest.raises(CodecError, match=f"^gradients .*{said}"):
        decode_checked(own, own.encode(VALUES, 0), (2, 3), "gradients")


def test_what_an_own_codec_decodes_comes_in_order():
    own = Own(
        decode=lambda data, shape: np.asfortranarray(data.view(np.float16).astype(np.float32).reshape(shape))
    )
    found = decode_checked(own, own.encode(VALUES, 0), (2, 3), "gradients")
    assert found.flags.c_contiguous
    assert (found == VALUES).all()


def lacking():
    """Makes something that has an encode alone."""
    return type("Part", (), {"name": 3, "lossless": True, "encode": print})()


refused = raises(PlanError("not now"))
broken = raises(OSError("no such file"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lacking", "made Part, of which name, at_most, size, decode can't be used: a codec has"),
        ("broken", r"can't be made \(OSError: no such file, at .*\): it is called without arguments"),
        ("nowhere", "can't be imported"),
        ("VALUES", "is ndarray, but must be a function or class"),
    ],
)
def test_what_makes_no_codec_is_refused(name, said):
    with pytest.raises(CodecError, match=f"codec '{__name__}:{name}' {said}"):
        find_codec(f"{__name__}:{name}")


def test_what_an_own_codec_says_itself_is_left_as_it_says_it():
    with pytest.raises(PlanError, match=r"^not now$"):
        find_codec(f"{__name__}:refused")


def test_sizes_of_a_profile_load_neither_torch_nor_a_compiler():
    code = "import sys; from cutwater.codec import Crossing, crossing_size, Size"
    code += "; print({'torch', 'numba'} & {*sys.modules})"
    code += "; from cutwater.codec import *; find_codec('int8'); print({'torch'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set()", "set()"]
    assert sorted(cutwater.codec.__all__) == dir(cutwater.codec)


def test_loops_are_compiled_once_whatever_arrays_they_meet():
    for name in CODECS:
        for shape in ((4,), (3, 4), (2, 3, 4, 5)):
            locked = drawn(shape, 0)
            locked.flags.writeable = False
            codec = find_codec(name)
            for values in (locked.copy(), locked, np.asfortranarray(locked)):
                data = codec.encode(values, 0)
                for sent in (data, np.frombuffer(b"\0" + data.tobytes(), np.uint8)[1:]):
                    codec.decode(sent, shape)
    loops = [loop for module in (bit_loops, float_loops, quantise_loops) for loop in vars(module).values()]
    counts = [len(loop.signatures) for loop in loops if hasattr(loop, "signatures")]
    assert len(counts) == 22
    assert {*counts} <= {0, 1}  # those that another loop calls need no compiling of their own
