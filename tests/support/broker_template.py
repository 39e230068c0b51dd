"""Forks brokers that have imported everything already: a process imports it once, and each broker of the tests is a fork of it.

Imports take seven eighths of the processor time of a broker's start. A fork then does what `python -m ottla serve` does. The command
itself is run by the tests of `ottla serve` and `ottla cluster` (`tests/support/serve_command.py`, `command_line.py`).

`python -m tests.support.broker_template SOCKET` is that process. It gets a request with the descriptors of standard output, standard error
and a pipe, and answers with the number of the fork and a pidfd. The pipe gets its exit status. It ends with the test process.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import socket
import sys
from contextlib import suppress
from importlib import import_module

LONGEST_REQUEST_BYTES = 128 * 1024
MODULES = (
    "ottla.cli.serve",
    "ottla.broker.server",
    "ottla.broker.service_manager",
    "ottla.broker.logs.events",
    "ottla.broker.logs.sink",
    "ottla.controller.store.embedded_store",
    "uvloop",
)
"""A broker imports these before it is ready, and they nearly all that it ever imports."""
_FIRST_DESCRIPTOR, _LAST_DESCRIPTOR = 3, 4096


class Template:
    """The process of which brokers are forks."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._forks: dict[int, tuple[int, int]] = {}
        """A pidfd -> the process, and the pipe for its exit status."""

    def run(self) -> list[str] | None:
        """Fork for each request. Returns the arguments in a fork, and None at the end of the test process."""
        while True:
            ready, _, _ = select.select([self._requests, *self._forks], [], [])
            for pidfd in ready:
                if isinstance(pidfd, int):
                    self._tell_of_end(pidfd)
            if self._requests in ready:
                request, descriptors, _, _ = socket.recv_fds(self._requests, LONGEST_REQUEST_BYTES, 3)
                if not request:
                    return None
                pid = os.fork()
                if pid == 0:
                    return _become(json.loads(request), descriptors)
                self._answer(pid, descriptors)

    def _answer(self, pid: int, descriptors: list[int]) -> None:
        *standard_streams, status = descriptors
        for descriptor in standard_streams:
            os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        self._forks[pidfd] = pid, status
        socket.send_fds(self._requests, [str(pid).encode()], [pidfd])

    def _tell_of_end(self, pidfd: int) -> None:
        pid, status = self._forks.pop(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(pidfd)
        with suppress(BrokenPipeError):  # the test process has ended
            os.write(status, b"%d" % code)
        os.close(status)


def _become(request: dict[str, object], descriptors: list[int]) -> list[str]:
    """Take the descriptors, the folder and the environment of the request; its arguments."""
    for number, descriptor in enumerate(descriptors[:2], 1):
        os.dup2(descriptor, number)
    os.closerange(_FIRST_DESCRIPTOR, _LAST_DESCRIPTOR)
    # As Python makes them at its start: those of the template know what its descriptors were.
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", encoding="utf-8", buffering=1, errors="backslashreplace", closefd=False)
    arguments, folder, environment = request["arguments"], request["folder"], request["environment"]
    assert isinstance(arguments, list)
    assert isinstance(folder, str)
    assert isinstance(environment, dict)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return arguments


def main(descriptor: int) -> None:
    """Import what brokers need, and fork them. A fork goes on here as a broker."""
    for module in MODULES:
        import_module(module)
    requests = socket.socket(fileno=descriptor)
    requests.send(b"ready")
    arguments = Template(requests).run()
    if arguments is not None:
        requests.detach()  # closed already, and its number may be that of something else
        sys.argv = ["broker", *arguments]
        runpy.run_module("ottla", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
