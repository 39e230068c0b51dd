"""Appends log lines to a file that rotates by size and by age.

`broker.log` becomes `broker.log.1`, and so on up to the configured number. If the file was moved, or its folder was removed, a new file is
opened: within CHECK_SECONDS, or at once after `reopen`. Lines that cannot be written go to standard error, after one line with the reason.
So a full disk or a lost folder never stops the broker. `ottla.broker.logs.sink` calls this in its thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import Final

from ottla.broker.logs import standard_error
from ottla.storage.disk.filesystem import FILE_MODE

CHECK_SECONDS: Final = 1.0
"""Pause between two checks of the file's name, and between two attempts after a failure, seconds."""


class RotatingFile(logging.Handler):
    """See the module."""

    def __init__(self, path: str, max_bytes: int, retained: int, roll_seconds: float) -> None:
        """`retained` is the number of older files that stay. Raises OSError when the file cannot be opened."""
        super().__init__()
        self._path = path
        self._max_bytes = max_bytes
        self._retained = retained
        self._roll_seconds = roll_seconds
        self._is_torn = False
        """Whether the file may end within a line."""
        self._refusal: str | None = None
        self._file: int | None = None
        self._open()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        line = self.format(record).encode("utf-8", "backslashreplace") + b"\n"
        try:
            self._check()
            if self._file is not None:
                if self._size and (self._size + len(line) > self._max_bytes or time.monotonic() >= self._roll_at):
                    self._rotate()
                self._write(line)
                return
        except OSError as error:
            self._refuse(error)
        standard_error.write(line)

    def reopen(self) -> None:
        """Check the name of the file at once."""
        self._check_at = 0.0
        try:
            self._check()
        except OSError as error:
            self._refuse(error)

    def close(self) -> None:
        """Close the file."""
        self._close_file()
        super().close()

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self._size = os.fstat(self._file).st_size
        now = time.monotonic()
        self._check_at = now + CHECK_SECONDS
        self._roll_at = now + self._roll_seconds

    def _check(self) -> None:
        """Open the file again if its name refers to another file, or if it could not be opened. Raises OSError."""
        now = time.monotonic()
        if now < self._check_at:
            return
        self._check_at = now + CHECK_SECONDS
        if self._file is not None and self._refusal is None:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self._path), os.fstat(self._file)):
                    return
        self._close_file()
        self._open()

    def _rotate(self) -> None:
        self._close_file()
        for number in range(self._retained, 0, -1):
            older = self._path if number == 1 else f"{self._path}.{number - 1}"
            with contextlib.suppress(FileNotFoundError):
                os.replace(older, f"{self._path}.{number}")
        if not self._retained:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        self._open()

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        if self._is_torn:
            line = b"\n" + line
        self._is_torn = True
        written = os.write(self._file, line)
        if written < len(line):
            os.write(self._file, line[written:])  # raises the reason: the disk took only a part
        self._is_torn = False
        self._size += len(line)
        self._refusal = None

    def _refuse(self, error: OSError) -> None:
        """Report the reason once, and close the file until the next attempt."""
        reason = error.strerror or str(error)
        self._close_file()
        if reason != self._refusal:
            self._refusal = reason
            text = f"ottla: log file {self._path} cannot be written: {reason}; lines go to standard error until it can be"
            standard_error.write(text.encode() + b"\n")

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
