"""Runs Kafka's command line tools in JVMs that stay, which takes a tenth of a second each instead of two.

A JVM runs one tool at a time (see `Tools.java`), and is kept for the next tool; tools that run at the same time have one each. The JVMs end
with the process that started them. Use `java.start_tool` for a tool that must be killed, or that runs until it is stopped.
"""

import os
import select
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.apache_kafka.class_archives import TOOLS, using
from tests.support.apache_kafka.guard import process_guard
from tests.support.apache_kafka.java import QUICK_OPTIONS, java_command

PROGRAM = Path(__file__).with_name("Tools.java")
_LENGTH = struct.Struct(">i")


class ToolJvm:
    """A JVM that runs tools one after the other. `options` are those beside the quick ones. `libs` are the jars of another release.

    Raises ToolMissingError.
    """

    def __init__(self, options: Sequence[str], program: str | Path = PROGRAM, libs: Path | None = None) -> None:
        command = java_command(("-Xmx256m", *QUICK_OPTIONS, *options), program, libs=libs)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process_guard().watch(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Have it end as it does by itself."""
        self._process.communicate()
        process_guard().release(self._process.pid)

    def run(self, words: Sequence[str], input: str, timeout: float) -> subprocess.CompletedProcess[str]:
        """Run a tool to its end. After an exception the JVM is dead. Raises subprocess.TimeoutExpired."""
        try:
            assert self._process.stdin is not None
            texts = [word.encode() for word in (*words, input)]
            self._process.stdin.write(_LENGTH.pack(len(words)) + b"".join(_LENGTH.pack(len(text)) + text for text in texts))
            self._process.stdin.flush()
            deadline = time.monotonic() + timeout
            status = self._number(deadline)
            output, errors = (self._read(self._number(deadline), deadline).decode(errors="replace") for _ in range(2))
        except TimeoutError as late:
            self._kill()
            raise subprocess.TimeoutExpired([*words], timeout) from late
        except BaseException:
            self._kill()
            raise
        return subprocess.CompletedProcess([*words], status, output, errors)

    def _number(self, deadline: float) -> int:
        (number,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        assert isinstance(number, int)
        return number

    def _read(self, count: int, deadline: float) -> bytes:
        """Raises TimeoutError, and EOFError when the JVM has ended."""
        assert self._process.stdout is not None
        descriptor, found = self._process.stdout.fileno(), b""
        while len(found) < count:
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError
            more = os.read(descriptor, count - len(found))
            if not more:
                raise EOFError("the JVM of the tools has ended")
            found += more
        return found

    def _kill(self) -> None:
        self._process.kill()
        self._process.communicate()
        process_guard().release(self._process.pid)


_idle: dict[int, list[ToolJvm]] = {}


def run_tool(class_name: str, *arguments: str, input: str = "", timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end, e.g. `run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, "--list")`.

    The exit code is the caller's to judge. Raises subprocess.TimeoutExpired (the tool is dead then) and ToolMissingError.
    """
    idle = _idle.setdefault(os.getpid(), [])  # a fork must not speak through the pipe of its parent
    jvm = idle.pop() if idle else ToolJvm(using(TOOLS))
    ended = jvm.run((class_name, *arguments), input, timeout)
    idle.append(jvm)
    return ended


@contextmanager
def a_leaving_tool(class_name: str, bootstrap: str) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Run a tool that leaves its client open, like TransactionsCommand, in a JVM of its own: once for each call with its other arguments.

    In a shared JVM that client would write into the output of later tools when its broker has ended. The calls raise as `run_tool` does.
    """
    with ToolJvm(using(TOOLS)) as jvm:
        yield lambda *arguments: jvm.run((class_name, "--bootstrap-server", bootstrap, *arguments), "", timeout=60)
