"""Settings of the C library that keep host memory freed by a step on CPU for the next step."""

from __future__ import annotations

import ctypes
import platform

# Constants of malloc.h, each with its number and our value: never return the free end of the heap to the system, never
# map a block outside the heap, and use one heap for all threads, because any other heap cannot hold large blocks.
_SETTINGS = {"M_TRIM_THRESHOLD": (-1, -1), "M_MMAP_MAX": (-4, 0), "M_ARENA_MAX": (-8, 1)}


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory until the process ends (mallopt(3)); returns False with another C library.

    The temporaries of a step are one block, of gigabytes for a real model on CPU. Without these settings, it would be
    returned to the system after every step and allocated again, zeroed page by page. Call this before JAX starts its
    threads, because a thread that already has a heap of its own keeps it.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(setting, value) for setting, value in _SETTINGS.values()])
