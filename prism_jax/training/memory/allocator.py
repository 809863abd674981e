"""What the C library does with host memory that a step on CPU has freed: keep it for the next one."""

from __future__ import annotations

import ctypes
import platform

# Of malloc.h, each with its number and our value: never give the heap's free end back; map no block apart from it; one
# heap for all threads, since another would hold no large blocks.
_SETTINGS = {"M_TRIM_THRESHOLD": (-1, -1), "M_MMAP_MAX": (-4, 0), "M_ARENA_MAX": (-8, 1)}


def keep_freed_memory() -> bool:
    """Has glibc keep freed memory until the process ends (mallopt(3)); False where there is no glibc.

    A step's temporaries are one block, of gigabytes for a real model on CPU, which would go back to the system after
    every step and come again, zeroed page by page. To be called before JAX starts its threads: one that has a heap of
    its own stays with it.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(setting, value) for setting, value in _SETTINGS.values()])
