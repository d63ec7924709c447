"""Codecs: what crosses the cut of a split model, as bytes and back.

    value           what a codec is, and the size of what it makes
    crossing        the tensors that cross a cut, and what that takes
    floats          fp32, bf16, fp16: every number as a float
    lossless        fp32 without its zeros
    quantised       int8, int4: every number as a level of a scale
    topk            the largest numbers of each sample
    registry        codecs by name, or a user's own, and in words, the lossy ones called so
    checked         codecs at work, held to what they declare
    float_loops, quantise_loops, bit_loops   their inner loops, compiled

The names below are imported on first use: a profile tells what crosses its cuts without a compiler's being
loaded for that.
"""

from typing import TYPE_CHECKING

from cutwater.base.lazy import by_name, offered

if TYPE_CHECKING:
    from cutwater.codec.checked import decode_checked, encode_checked, size_checked
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
]

_HOME = by_name(
    {
        "cutwater.codec.checked": ("decode_checked", "encode_checked", "size_checked"),
        "cutwater.codec.crossing": ("Crossing", "crossing_size"),
        "cutwater.codec.registry": ("CODECS", "find_codec"),
        "cutwater.codec.value": ("Codec", "Size"),
    }
)
__getattr__, __dir__ = offered(__name__, _HOME)
