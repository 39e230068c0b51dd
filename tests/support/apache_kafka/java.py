"""Runs Java processes: Kafka's command line tools, and guarded servers that write into a log file.

Called by tests (`start_tool`), by `tools.py` and by the servers of this package (`JavaServer`).
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.support.apache_kafka.class_archives import TOOLS, using
from tests.support.apache_kafka.guard import process_guard
from tests.support.apache_kafka.jars import ensure_jars
from tests.support.apache_kafka.programs import in_class_path

_LOG4J = Path(__file__).with_name("log4j.properties")
_UNVERIFIED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
QUICK_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_UNVERIFIED)
"""For short lives: start fast, verify nothing, never optimise."""
KEYTOOL = ("keytool", *(f"-J{option}" for option in QUICK_OPTIONS))
"""The beginning of its command line."""
_STOP_SECONDS = 30


class DidNotStartError(RuntimeError):
    """A server ended, or stayed silent, before it served; the message holds the end of its log."""


def java_command(options: Sequence[str], program: str | Path, *arguments: str, libs: Path | None = None) -> list[str]:
    """The command line that runs a class of Apache Kafka's class path, or the program in a source file. Raises ToolMissingError.

    `libs` has the jars of another release than 3.9.
    """
    return ["java", *options, f"-Dlog4j.configuration=file:{_LOG4J}", *in_class_path(program, libs or ensure_jars()), *arguments]


def start_tool(
    program: str | Path, *arguments: str, options: Sequence[str] | None = None, output: IO[str] | None = None, libs: Path | None = None
) -> subprocess.Popen[str]:
    """Start a tool that runs until it is stopped, with pipes for its three streams. The caller ends it; otherwise the guard does.

    `options` are those of its JVM beside the quick ones: by default, the archive of the tools' classes. `output` takes both its outputs.
    `libs` has the jars of another release than 3.9.
    """
    command = java_command(("-Xmx256m", *QUICK_OPTIONS, *(using(TOOLS) if options is None else options)), program, *arguments, libs=libs)
    to = output or subprocess.PIPE
    tool = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=to, stderr=to, text=True)
    process_guard().watch(tool.pid)
    return tool


@contextmanager
def pinned_to(cpu: int | None) -> Iterator[None]:
    """Processes that start inside run only on this core, from their first instruction: a JVM sizes itself by the cores that it finds."""
    before = os.sched_getaffinity(0)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class JavaServer:
    """One guarded Java server process; its output is appended to `log`. Start it again after it ended as often as needed."""

    def __init__(self, name: str, log: Path, pin_cpu: int | None = None) -> None:
        self.name = name
        self.log = log
        self._pin_cpu = pin_cpu
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self, command: Sequence[str]) -> None:
        """Start the process and return at once."""
        assert self._process is None, f"{self.name} runs already"
        with open(self.log, "ab") as log, pinned_to(self._pin_cpu):
            self._log_start = log.tell()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.log.parent)
        process_guard().watch(self._process.pid)

    def wait_until(self, serves: Callable[[], bool], seconds: float) -> None:
        """Return as soon as it serves. Raises DidNotStartError when it ends before that, or after so many seconds; it is dead then."""
        deadline = time.monotonic() + seconds
        while not serves():
            if not self.running or time.monotonic() > deadline:
                state = f"does not serve after {seconds} s" if self.running else "ended before it served"
                self.end(signal.SIGKILL)
                raise DidNotStartError(f"{self.name} {state}; the end of {self.log}:\n{self.said()[-3000:]}")
            time.sleep(0.01)

    def said(self) -> str:
        """The output of this run of the process."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Signal the process and wait for its end; SIGKILL follows when a polite request is not heeded. No-op when it does not run."""
        if self._process is not None:
            process_guard().end(self._process, how, _STOP_SECONDS)
            self._process = None
