"""Everything of a file system written to its disk: syncfs(2), which Python does not offer."""

import ctypes
import os

_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)  # Linux has it
if _syncfs is not None:
    _syncfs.argtypes = [ctypes.c_int]


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
