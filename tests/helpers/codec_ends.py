"""A tensor through a codec, from one end to the other."""

from cutwater.codec import Codec, decode_checked, encode_checked
from cutwater.codec.value import TENSOR, Values


def transfer(codec: Codec, values: Values, seed: int) -> Values:
    """What arrives at the other end."""
    return decode_checked(codec, encode_checked(codec, values, seed, TENSOR), values.shape, TENSOR)
