"""Starts brokers as forks of a process that has imported everything (`tests.support.broker_template`), with the methods of a Popen."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

BROKER = ("ottla",)
"""The module of `ottla`."""
ROOT = Path(__file__).parents[2]
MEANT_FOR_THE_START = ("PYTHON", "OTTLA_", "LD_", "MALLOC_", "GLIBC_")
"""Beginnings of the names of environment variables that a process reads when it starts: a fork would not."""
_SECONDS = 90.0


class ForkedBroker:
    """A running or ended fork. Its standard output is a text, as that of a Popen with `text=True`."""

    def __init__(self, pid: int, pidfd: int, status: int, stdout: IO[str]) -> None:
        self.pid = pid
        self.stdout: IO[str] | None = stdout
        self.returncode: int | None = None
        self._pidfd = pidfd
        self._status = status
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, at its end. Raises subprocess.TimeoutExpired."""
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(["broker"], timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal to it while it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended just now
                signal.pidfd_send_signal(self._pidfd, number)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is not None:
            return self.returncode
        ready = select.poll()  # the number of a descriptor may be too large for select
        ready.register(self._status, select.POLLIN)
        if ready.poll(None if timeout is None else timeout * 1000):
            with self._reading:
                if self.returncode is None:
                    told = os.read(self._status, 16)
                    assert told, "the process that forks brokers has ended"
                    self.returncode = int(told)
                    os.close(self._status)
                    os.close(self._pidfd)
        return self.returncode


class _Starter:
    """The template of this test process."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.settimeout(_SECONDS)
        self._asking = threading.Lock()
        self.environment = dict(os.environ)
        with theirs:
            # A session of its own: Ctrl-C in the terminal is for the tests, which stop their brokers.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.broker_template", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                start_new_session=True,
            )
        assert self._requests.recv(16) == b"ready"

    def start(self, arguments: list[str], folder: Path, environment: dict[str, str], log: IO[bytes]) -> ForkedBroker:
        """Ask for a fork."""
        request = json.dumps({"arguments": arguments, "folder": str(folder.absolute()), "environment": environment}).encode()
        (stdout, its_stdout), (status, its_status) = os.pipe(), os.pipe()
        try:
            with self._asking:
                socket.send_fds(self._requests, [request], [its_stdout, log.fileno(), its_status])
                answer, (pidfd,), _, _ = socket.recv_fds(self._requests, 16, 1)
        finally:
            os.close(its_stdout)
            os.close(its_status)
        return ForkedBroker(int(answer), pidfd, status, os.fdopen(stdout))

    def close(self) -> None:
        """End it. Its forks are those of the tests."""
        self._requests.close()
        self._process.wait(_SECONDS)


@cache
def _starter(pid: int) -> _Starter:
    starter = _Starter()
    atexit.register(starter.close)
    return starter


def start_broker(
    arguments: list[str], log: IO[bytes], environment: dict[str, str], folder: Path | None = None, program: Sequence[str] = BROKER
) -> ForkedBroker | subprocess.Popen[str]:
    """`ottla serve` with these arguments, in that folder; the log gets standard error.

    A process of its own if another program is run, or if Python would read another environment when it starts.
    """
    environment = {**environment, "PYTHONPATH": str(ROOT)}
    starter = _starter(os.getpid()) if program == BROKER else None  # by process: a fork of the test process has no template
    if starter is not None and _for_the_start(environment) == _for_the_start(starter.environment):
        return starter.start(["serve", *arguments], folder or Path.cwd(), environment, log)
    return subprocess.Popen(
        [sys.executable, "-m", *program, "serve", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        cwd=folder,
        env=environment,
    )


def _for_the_start(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(MEANT_FOR_THE_START) and name != "PYTHONPATH"}
