"""Codecs: what crosses the cut of a split model, as bytes and back.

value           what a codec is, and the size of what it makes
floats          fp32, bf16, fp16: every number as a float
lossless        fp32 without its zeros
quantised       int8, int4: every number as a level of a scale
topk            the largest numbers of each sample
registry        codecs by name, or a user's own
checked         codecs at work, held to what they declare
crossing        the tensors that cross a cut, and what that takes
float_loops, quantise_loops, bit_loops   their inner loops, compiled
"""

from cutwater.codec.checked import decode_checked, encode_checked, size_checked, transfer
from cutwater.codec.crossing import Crossing, crossing_size
from cutwater.codec.registry import CODECS, find_codec
from cutwater.codec.value import Codec, Size

__all__ = [
    "CODECS",
    "Codec",
    "Crossing",
    "Size",
    "crossing_size",
    "decode_checked",
    "encode_checked",
    "find_codec",
    "size_checked",
    "transfer",
]
