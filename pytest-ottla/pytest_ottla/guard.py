"""Clears up when a test run is killed: a shell runs a command once no process holds the other end of its standard input any more.

`ottla/validate/guard.py` has the same class. The plugin imports nothing of Ottla (`process.py`), and Ottla does not depend on the plugin.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

_WAIT = 'read -r over || "$@"'
"""The input ends without a line when all processes that could write one have ended."""

__tracebackhide__ = True  # a failure shows the line of the test
Started = TypeVar("Started", bound=AbstractContextManager[Any])

inherited: set[int] = set()
"""The descriptors of guards whose command waits for the end of the brokers, too."""


class Guard:
    """Runs a command when this process has ended without `end`, and with it each process that has inherited `descriptor`."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT, "guard", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a signal for the group of the tests is not for the guard
        )
        assert self._process.stdin is not None
        self._input = self._process.stdin
        self.descriptor = self._input.fileno()

    def end(self) -> None:
        """The command is not needed any more."""
        with contextlib.suppress(BrokenPipeError):
            self._input.write(b"over\n")
            self._input.flush()
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self._process.wait()


@contextlib.contextmanager
def started_in(directory: Path, start: Callable[[Path], Started]) -> Iterator[Started]:
    """Starts brokers in a directory, and removes that at the end, also if the tests are killed. The log of a failed start stays."""
    guard = Guard(["rm", "-rf", str(directory)])
    inherited.add(guard.descriptor)
    try:
        with start(directory) as started:
            yield started
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        inherited.discard(guard.descriptor)
        guard.end()
