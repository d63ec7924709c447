"""stub"""

from typing import Any, NamedTuple

Codec = Any


class Size(NamedTuple):
    """stub"""

    sample: int
    message: int

    def bits(self, samples: int) -> int:
        """stub"""
        return self.sample * samples + self.message


def encode_checked(codec: Codec, values: Any, seed: int, what: str) -> Any:
    """stub"""
    return codec.encode(values, seed)


def decode_checked(codec: Codec, data: Any, shape: Any, what: str) -> Any:
    """stub"""
    return codec.decode(data, shape)
