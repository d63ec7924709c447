"""What columns of numbers are called, and where arrays of them had better lie."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ALIGNMENT: Final = 64
"""Tensors start at multiples of this, as torch's own do: elsewhere, kernels may give other last bits."""


def aligned_floats(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """An array with nothing in it yet, at an address that ALIGNMENT divides.

    >>> aligned_floats((3, 5)).__array_interface__["data"][0] % ALIGNMENT
    0
    """
    size = 4 * math.prod(shape)
    buffer = np.empty(size + ALIGNMENT, np.uint8)
    start = -buffer.__array_interface__["data"][0] % ALIGNMENT
    return buffer[start : start + size].view(np.float32).reshape(shape)


def is_aligned(array: NDArray[np.generic]) -> bool:
    """Whether an array begins at such an address."""
    return int(array.__array_interface__["data"][0]) % ALIGNMENT == 0
