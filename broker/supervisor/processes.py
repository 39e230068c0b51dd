"""Starts, watches and signals one broker process. All methods are called on the supervisor's loop, and none of them
blocks.

The end of the process is noticed by a pidfd instead of SIGCHLD: a pidfd belongs to this one process, and signals
through it reach no other.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from broker.supervisor.state_file import ProcessName, name_of

_LAST_WORDS_BYTES = 8192


class BrokerProcess:
    """One run of one broker. `on_ready` is called when it reports that it serves, `on_exit` with its status once it has
    ended."""

    def __init__(self, command: Sequence[str], log_file: Path, on_ready: Callable[[], None], on_exit: Callable[[int], None]) -> None:
        """Start the process in a group of its own: Ctrl-C in a terminal only reaches the supervisor, which then stops
        the brokers."""
        self._loop = asyncio.get_running_loop()
        self._on_ready = on_ready
        self._on_exit = on_exit
        self._log_file = log_file
        with log_file.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, process_group=0)
        self.name: ProcessName = name_of(self._process.pid)
        self._pidfd = os.pidfd_open(self._process.pid)
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._hear)
        self._loop.add_reader(self._pidfd, self._end)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process has ended."""
        self._process.send_signal(number)

    def last_log_line(self) -> str:
        """The reason why this run ended, from its log: the last line `ottla: ...`, or else the last line."""
        with self._log_file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _LAST_WORDS_BYTES))
            lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        found = [line.removeprefix("ottla: ") for line in lines if line.startswith("ottla: ")]
        return found[-1] if found else lines[-1] if lines else ""

    def _hear(self) -> None:
        data = os.read(self._output, 4096)
        if not data:
            self._loop.remove_reader(self._output)
        elif b"ottla is ready" in data:
            self._on_ready()

    def _end(self) -> None:
        status = self._process.wait()
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._output)
        os.close(self._pidfd)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._on_exit(status)
