"""Reads files that configurations name, without waiting for a device or a pipe, and no more than a limit."""

import errno
import os
import stat
from os import PathLike


def read_regular_file(path: str | PathLike[str], most_bytes: int) -> bytes:
    """The contents of a regular file.

    Raises OSError, also for any other kind of file and for a larger one; ValueError for a path that no file can have.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # without O_NONBLOCK a pipe waits for its other end
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most_bytes + 1)  # the size of a file of /proc is known only after reading
    finally:
        os.close(descriptor)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes")
    return data
