"""Writes log lines to standard error.

A caller writes a line itself as long as the system takes it at once, so that lines survive a kill of the process. Otherwise the thread of
`ottla.broker.logs.sink` writes the line, because the reader of a full pipe may not read for long.
"""

from __future__ import annotations

import logging
import os
import select
import stat
from typing import Final

DESCRIPTOR: Final = 2


class StandardError(logging.Handler):
    """See the module. It does not use `sys.stderr`: a thread that waits within that buffer would abort the process at exit."""

    def __init__(self) -> None:
        super().__init__()
        self._descriptor = DESCRIPTOR
        self._is_file = stat.S_ISREG(os.fstat(DESCRIPTOR).st_mode)
        self._room = select.poll()
        self._room.register(DESCRIPTOR, select.POLLOUT)

    def emit_at_once(self, record: logging.LogRecord) -> bool:
        """Write one line if that needs no wait; returns whether it was written. One thread at a time may call this."""
        line = self._line(record)
        # A pipe with room takes this many bytes as a whole.
        if not self._is_file and (len(line) > select.PIPE_BUF or not self._room.poll(0)):
            return False
        write(line, self._descriptor)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, and wait for the reader."""
        write(self._line(record), self._descriptor)

    def _line(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode("utf-8", "backslashreplace") + b"\n"


def write(line: bytes, descriptor: int = DESCRIPTOR) -> None:
    """Write a line; waits for the reader. The line is lost if there is none any more."""
    left = memoryview(line)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # another program made the pipe, and set it so
            select.select((), (descriptor,), ())
        except OSError:
            return
