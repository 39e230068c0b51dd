"""Undoes a fault when its author is gone: a process of its own runs a command if this process ends before the fault is undone.

That includes an end by SIGKILL.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress

_WAIT = 'read -r over || "$@"'
"""The end of its standard input without a line is the end of all processes that had the other side of the pipe."""


class Guard:
    """One fault. `descriptor` is the other side of the pipe: a process that inherits it delays the command until its own end."""

    def __init__(self, command: Sequence[str]) -> None:
        """Raises OSError when no process can be started."""
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT, "guard", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a signal for the group of this process is not for the guard
        )
        assert self._process.stdin is not None
        self._input = self._process.stdin
        self.descriptor = self._input.fileno()

    def end(self) -> None:
        """The fault is undone: the command does not run."""
        with suppress(BrokenPipeError):
            self._input.write(b"over\n")
            self._input.flush()
        with suppress(BrokenPipeError):
            self._input.close()
        self._process.wait()
