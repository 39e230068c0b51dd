"""Runs `ottla serve --ephemeral --json` and passes commands to it, one line of JSON each way.

The broker ends when this process ends, however that happens, also a paused one. Nothing of Ottla is imported here, so a project's own
modules cannot be in its way.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_ottla.guard import Guard, inherited

START_SECONDS = 60.0
STOP_SECONDS = 60.0
ANSWER_SECONDS = 60.0
"""Time for the answer to a command beyond the command's own timeout, seconds."""
__tracebackhide__ = True  # a failure shows the line of the test


class OttlaError(Exception):
    """One line: what a broker could not do, and how to go on."""


class Ended(OttlaError):
    """The process has ended instead of answering."""


def command() -> list[str]:
    """The command `ottla` of this Python, or the first on the PATH. Raises OttlaError."""
    beside = Path(sys.executable).with_name("ottla")
    found = str(beside) if beside.exists() else shutil.which("ottla")
    if found is None:
        raise OttlaError("there is no command ottla: install ottla into the environment of the tests")
    return [found]


class BrokerProcess:
    """One process. `described` is the line that it printed when it was ready."""

    def __init__(self, settings: Mapping[str, str], log: Path) -> None:
        """Starts a broker and waits until it is ready. Raises OttlaError with the broker's reason."""
        arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        with log.open("ab") as errors:
            begin = errors.tell()
            self._process = subprocess.Popen(
                [*command(), "serve", "--ephemeral", "--json", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=tuple(inherited),
                start_new_session=True,  # an interrupt at the terminal is for the tests
            )
        self._sending = threading.Lock()
        self._number = 0
        self._received = bytearray()
        self._changed = threading.Condition()
        """Guards the answers that have arrived."""
        self._answers: dict[int, dict[str, Any]] = {}
        self._is_reading = False
        self._guard: Guard | None = None
        try:
            self.described = self._line(time.monotonic() + START_SECONDS)
        except (OttlaError, ValueError):  # no line, or another than a broker prints
            self.end(signal.SIGKILL)
            raise OttlaError(_reason(log, begin)) from None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def ask(self, do: str, seconds: float = 0.0, **arguments: Any) -> Any:
        """Send a command, and return its result. Several threads may ask at a time. Raises OttlaError.

        `seconds` is what the command may take by itself.
        """
        deadline = time.monotonic() + ANSWER_SECONDS + seconds
        with self._sending:
            self._number += 1
            number = self._number
            order = json.dumps({"id": number, "do": do, **arguments}) + "\n"
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(order.encode())
                self._process.stdin.flush()
            except BrokenPipeError:
                raise Ended("the broker has ended") from None
        answer = self._answer(number, deadline)
        if "error" in answer:
            raise OttlaError(answer["error"])
        return answer["result"]

    def _answer(self, number: int, deadline: float) -> dict[str, Any]:
        """The answer to a command. One of the threads that wait reads for all: a thread of its own would forbid the tests to fork."""
        with self._changed:
            while number not in self._answers:
                if not self._is_reading:
                    self._read_one(deadline)
                elif not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise OttlaError("the broker does not answer")
            return self._answers.pop(number)

    def _read_one(self, deadline: float) -> None:
        """Keep the next answer, whichever it is. The lock of `_changed` is free meanwhile."""
        self._is_reading = True
        self._changed.release()
        try:
            answer = self._line(deadline)
        finally:
            self._changed.acquire()
            self._is_reading = False
            self._changed.notify_all()
        self._answers[answer.get("id", 0)] = answer

    @property
    def is_paused(self) -> bool:
        """Whether the process is suspended."""
        return self._guard is not None

    def pause(self) -> None:
        """Suspend the process. If the tests are killed, the process is resumed, since a suspended broker cannot notice their end."""
        if self._guard is None:
            self._guard = Guard(["kill", "-CONT", str(self.pid)])
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        self._process.send_signal(signal.SIGCONT)
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.end()

    def end(self, number: signal.Signals) -> int:
        """End the process by a signal, also a paused one; returns its exit status. Raises OttlaError if it had to be killed instead."""
        if self.is_running:
            self._process.send_signal(number)
        self.resume()
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise OttlaError(f"the broker did not stop within {STOP_SECONDS:g} s, and was killed") from None
        finally:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def _line(self, deadline: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._received:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise OttlaError("the broker does not answer")
                data = self._process.stdout.read1(65_536)  # type: ignore[attr-defined]  # the pipe is a BufferedReader
                if not data:
                    raise Ended("the broker has ended")
                self._received += data
        line, _, rest = self._received.partition(b"\n")
        self._received = bytearray(rest)
        found: dict[str, Any] = json.loads(line)
        return found


def _reason(log: Path, begin: int) -> str:
    """The line with which a broker refused to start, or the last line of its log."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").splitlines()
    refusals = [line.removeprefix("ottla: ") for line in lines if line.startswith("ottla: ")]
    return f"the broker did not start: {(refusals or lines or ['it said nothing'])[-1]}; its log is {log}"
