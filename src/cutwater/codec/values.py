"""stub"""

from typing import Any

Codec = Any


def encode_checked(codec, values, seed, what):
    return codec.encode(values, seed)


def decode_checked(codec, data, shape, what):
    return codec.decode(data, shape)
