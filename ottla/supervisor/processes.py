"""Starts, watches and signals one broker process. The methods of `BrokerProcess` are called on the supervisor's loop, and none of them
waits for the disk; `Outputs` does.

The end of the process is noticed by a pidfd instead of SIGCHLD: a pidfd belongs to this one process, and signals
through it reach no other.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.config.loader import ENVIRONMENT_PREFIX, NOT_CONFIGURATION
from ottla.storage.disk.filesystem import opener
from ottla.supervisor.state_file import ProcessName, name_of

_LAST_WORDS_BYTES = 8192
_OF_SUPERVISOR = frozenset({"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"})
"""Variables by which systemd and the supervisor talk."""


class BrokerProcess:
    """One run of one broker. `on_ready` is called with what it reports once it serves, `on_exit` with its status once it has
    ended."""

    def __init__(
        self,
        command: Sequence[str],
        standard_error: int,
        on_ready: Callable[[dict[str, Any]], None],
        on_exit: Callable[[int], None],
    ) -> None:
        """Start the process in a group of its own: Ctrl-C in a terminal only reaches the supervisor, which then stops
        the brokers. `standard_error` is a descriptor, which the caller closes. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._on_ready = on_ready
        self._on_exit = on_exit
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=standard_error,
            env=environment_of_broker(os.environ),
            process_group=0,
        )
        assert self._process.stdout is not None
        self.name: ProcessName = name_of(self._process.pid)
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:  # no descriptor is left: a process that is not watched must not run
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            raise
        self._output = self._process.stdout.fileno()
        self._heard = b""
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._hear)
        self._loop.add_reader(self._pidfd, self._end)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process has ended."""
        self._process.send_signal(number)

    def _hear(self) -> None:
        data = os.read(self._output, 4096)
        if not data:
            self._loop.remove_reader(self._output)
        elif not self._heard.endswith(b"\n"):
            self._heard += data
            if self._heard.endswith(b"\n"):
                self._on_ready(json.loads(self._heard))

    def _end(self) -> None:
        status = self._process.wait()
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._output)
        os.close(self._pidfd)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._on_exit(status)


def environment_of_broker(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without `KAFKA_*`, which is in the broker's properties already, and without the variables of systemd."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OF_SUPERVISOR and (name in NOT_CONFIGURATION or not name.startswith(ENVIRONMENT_PREFIX))
    }


class Outputs:
    """The files of one run: the process writes its log to `log_file`, and everything else to `error_file`."""

    def __init__(self, error_file: Path, log_file: Path) -> None:
        """Open the file for the standard error output, which the caller closes. Raises OSError."""
        self._log = _Output(log_file)
        self._errors = _Output(error_file)
        self.standard_error = opener(str(error_file), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def last_log_line(self) -> str:
        """The reason why this run ended: its last line `ottla: ...`, or else the last line that it wrote to either file."""
        errors = self._errors.last_lines()
        found = [line.removeprefix("ottla: ") for line in errors if line.startswith("ottla: ")]
        lines = found or errors or self._log.last_lines()
        return lines[-1] if lines else ""


class _Output:
    """A file to which runs append, as it was before this run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin = path.stat().st_size if path.exists() else 0

    def last_lines(self) -> list[str]:
        """The last lines of this run that are not empty; none if the file cannot be read, which must not hide the end of the run."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                begin = self._begin if size >= self._begin else 0  # smaller than before, the file has rotated
                file.seek(max(begin, size - _LAST_WORDS_BYTES))
                return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        except OSError:
            return []
