"""Memory that a process keeps for its next mini-batch."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""As malloc.h numbers them."""
_KEEP = 256 << 20
_LARGEST = 32 << 20
"""No larger block can be kept: glibc takes no higher threshold."""


def keep_freed_memory() -> bool:
    """Let this process keep up to 256 MiB of what it frees; whether it can.

    Each mini-batch allocates what the one before has freed. By default glibc gives it back to the kernel in
    between, and to get it again page by page took up to a fifth of a small CNN's step. It concerns the whole
    process, so it is for processes of our own: workers, commands, ServerApps and ClientApps. Results do not
    depend on it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another libc, or none that can be asked
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _KEEP) and mallopt(_MMAP_THRESHOLD, _LARGEST))
