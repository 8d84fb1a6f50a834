"""Keeps memory that was freed for what comes next, so that buffers of screenshots are not new pages every time.

glibc gives large blocks back to the system when they are freed. Each of the dozen copies that a screenshot passes
through is then zeroed page by page again, which takes longer than all that is done with it.
"""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt
KEPT_BYTES = 64 * 2**20  # free at the end of the heap
LARGEST = 32 * 2**20  # block that is not mapped by itself; glibc takes no more


def reuse_freed_memory() -> None:
    """For this process, from now on; nothing happens where the C library is another one."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        libc.mallopt(MMAP_THRESHOLD, LARGEST)
