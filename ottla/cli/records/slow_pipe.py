"""Writes the records of `ottla consume -G` to a pipe whose reader may be slow: the member must send its heartbeats meanwhile.

A pipe that is ready takes PIECE_BYTES without waiting. A write of more would wait for the reader, however long that takes.
"""

import select
import time
from collections.abc import Callable, Iterable
from typing import IO, Final

PIECE_BYTES: Final = select.PIPE_BUF
_BUFFER_BYTES: Final = 65_536
_WAIT_SECONDS: Final = 1.0


class SlowPipe:
    """See the module."""

    def __init__(self, out: IO[bytes], meanwhile: Callable[[], object]) -> None:
        """`meanwhile` is called about once a second during a long write. Nothing else writes to `out`, which is a pipe."""
        self._out = out
        self._meanwhile: Callable[[], object] | None = meanwhile
        self._buffer = bytearray()
        self._next_call = time.monotonic() + _WAIT_SECONDS

    def writelines(self, lines: Iterable[bytes]) -> None:
        """Write lines, of which some may stay in the buffer. Raises OSError."""
        for line in lines:
            self._buffer += line
            if len(self._buffer) >= _BUFFER_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write all that is in the buffer. Raises OSError."""
        while self._buffer:
            _, ready, _ = select.select([], [self._out], [], _WAIT_SECONDS)
            if ready:
                piece = bytes(self._buffer[:PIECE_BYTES])
                del self._buffer[:PIECE_BYTES]
                self._out.write(piece)  # whose own buffer keeps the piece over an interrupt
                self._out.flush()
            if self._meanwhile is not None and time.monotonic() >= self._next_call:
                self._meanwhile()
                self._next_call = time.monotonic() + _WAIT_SECONDS

    def complete(self) -> None:
        """Write the rest after an interrupt, so that the last record is whole. Raises OSError."""
        self._meanwhile = None
        self._out.flush()
        self.flush()
