"""What crosses a cut: float32 by the codec, everything else as it is, and back only what has a gradient."""

import json

import numpy as np
import pytest
import torch

from cutwater.base.errors import CodecError, FileFormatError
from cutwater.base.schema import read, table
from cutwater.codec import CODECS, Crossing, Size, crossing_size, find_codec
from cutwater.codec.crossing import BITS

IMAGE = Crossing((8, 4, 4), "float32", True)
TEXT = Crossing((16, 32), "float32", True)
MASK = Crossing((16,), "bool", False)
IDS = Crossing((3,), "int64", False)
WIDE = Crossing((5,), "float64", True)


def test_up_go_all_of_them_and_down_those_with_a_gradient():
    int8 = find_codec("int8")
    assert crossing_size((IMAGE, TEXT, MASK, IDS, WIDE), int8, down=False) == Size(
        8 * 128 + (8 * 512 + 32) + 128 + 192 + 320, 256
    )
    assert crossing_size((IMAGE, TEXT, MASK, IDS, WIDE), int8, down=True) == Size(
        8 * 128 + (8 * 512 + 32) + 320, 256
    )
    assert crossing_size((), int8, down=False) == Size(0, 0)


@pytest.mark.parametrize("name", CODECS)
def test_the_bits_are_those_of_the_messages(name):
    codec = find_codec(name)
    made = sum(8 * codec.encode(np.ones((5, *one.shape), np.float32), 0).size for one in (IMAGE, TEXT))
    assert crossing_size((IMAGE, TEXT), codec, down=True).bits(5) == made


def test_types_take_what_they_take_in_torch():
    assert {name: 8 * getattr(torch, name).itemsize for name in BITS} == BITS


def test_a_crossing_is_read_back_as_it_was_written():
    for one in (IMAGE, TEXT, MASK, Crossing((), "bfloat16", True)):
        assert read(Crossing, json.loads(json.dumps(table(one)))) == one
    assert hash(Crossing([8, 4, 4], "float32", True)) == hash(IMAGE)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dtype": "float31"}, "a crossing dtype is 'float31': did you mean 'float3"),
        ({"shape": [3, -1]}, r"a crossing shape\[1\] is -1, but must be a whole number"),
        ({"gradient": 1}, "a crossing gradient is 1, but must be true or false"),
        ({"shapes": 1}, "a crossing has an unknown key 'shapes'"),
    ],
)
def test_a_crossing_that_is_none_is_refused(wrong, said):
    with pytest.raises(FileFormatError, match=said):
        read(Crossing, table(IMAGE) | wrong)


def test_an_own_codec_must_declare_a_size():
    class Own:
        name = "own"

        def size(self, shape):
            return 3

    with pytest.raises(
        CodecError, match=r"a tensor of \(8, 4, 4\) a sample has, says codec 'own', the size 3"
    ):
        crossing_size([IMAGE], Own(), down=False)
