"""Watches the parent process, so that an ephemeral broker ends with it.

The kernel reports the end of the parent by its process descriptor, also after SIGKILL. The end of standard input counts, too, because a
parent that ended even earlier has closed that pipe. Commands arrive by the pipe (`ottla.ephemeral.control`). The first process of a
container cannot watch a parent, so there only the pipe counts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

STANDARD_INPUT: Final = 0
_NO_PARENT: Final = 0
"""The parent's process id in the first process of a container."""
_READ_BYTES: Final = 65_536
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""Longest command, bytes; it may carry records."""


class Parent:
    """See the module."""

    def __init__(self, on_end: Callable[[], None], on_line: Callable[[bytes], None]) -> None:
        """`on_line` gets each complete line of standard input, if that is a pipe."""
        self._on_end = on_end
        self._on_line = on_line
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._reads = False
        self._process: int | None = None

    def watch(self) -> None:
        """Begin. Calls `on_end` at once if the parent has ended already."""
        parent = os.getppid()
        if parent != _NO_PARENT:
            try:
                self._process = os.pidfd_open(parent)
            except ProcessLookupError:
                self._on_end()
                return
            self._loop.add_reader(self._process, self._end)
        mode = os.fstat(STANDARD_INPUT).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            os.set_blocking(STANDARD_INPUT, False)
            self._loop.add_reader(STANDARD_INPUT, self._read)
            self._reads = True

    def close(self) -> None:
        """Watch no longer."""
        if self._process is not None:
            self._loop.remove_reader(self._process)
            os.close(self._process)
            self._process = None
        self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reads:
            self._loop.remove_reader(STANDARD_INPUT)
            self._reads = False

    def _end(self) -> None:
        self.close()
        self._on_end()

    def _read(self) -> None:
        try:
            data = os.read(STANDARD_INPUT, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if len(self._received) + len(data) > MAX_LINE_BYTES:
            logger.error("a command on standard input is longer than %d bytes, so the broker stops: write several", MAX_LINE_BYTES)
            data = b""
        if not data:
            self._end()
            return
        self._received += data
        if b"\n" not in data:
            return  # to split what was read before with every piece of a long line would take seconds
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        for line in lines:
            if line.strip():
                self._on_line(bytes(line))
