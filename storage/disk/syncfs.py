"""Syncs a whole file system: syncfs(2), which Python does not offer."""

import ctypes
import os
from collections.abc import Callable
from typing import cast


def _found() -> Callable[[int], int] | None:
    try:
        found = ctypes.CDLL(None, use_errno=True).syncfs  # Linux has it
    except (OSError, AttributeError):
        return None
    found.argtypes = [ctypes.c_int]
    return cast("Callable[[int], int]", found)


_syncfs = _found()


def syncfs(path: str) -> bool:
    """Sync the file system of the directory `path`; False where the system has no such call. Raises OSError."""
    if _syncfs is None:
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)
    return True
