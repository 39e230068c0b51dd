"""Runs the commands of `ottla` as users do, each in its own process, against any broker.

A command that runs to its end is forked from the test's process, which has already imported everything: a test that calls twenty commands
does not start Python twenty times. Commands that run until they are stopped start as usual.
"""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import tty
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from ottla.cli.main import main

SECONDS = 60.0


class Ended(NamedTuple):
    """The result of a command."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a printed table without its heading."""
        return [line.split() for line in self.lines[1:]]

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


class CommandLine:
    """Runs commands against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command that runs until it is stopped."""
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command(arguments), stdin=pipe, stdout=pipe, stderr=pipe, env=self._environment())

    def __call__(self, *arguments: str, input: str | bytes = b"", status: int = 0) -> Ended:
        """Run a command to its end, which must be with this status."""
        with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr:
            stdin.write(input.encode() if isinstance(input, str) else input)
            stdin.seek(0)
            child = os.fork()
            if child == 0:
                _run(arguments, (stdin.fileno(), stdout.fileno(), stderr.fileno()), self.bootstrap)
            code = _wait(child)
            stdout.seek(0)
            stderr.seek(0)
            ended = Ended(code, stdout.read().decode(errors="surrogateescape"), stderr.read().decode())
        assert ended.status == status, ended
        assert "Traceback" not in ended.err, ended.err
        return ended

    def on_terminal(self, *arguments: str) -> bytes:
        """The bytes that a command writes to a terminal until it ends."""
        reading, writing = os.openpty()
        tty.setraw(writing)
        command = subprocess.Popen(
            self._command(arguments), stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, env=self._environment()
        )
        os.close(writing)
        written = bytearray()
        with contextlib.suppress(OSError):  # EIO: the other side is closed
            while part := os.read(reading, 65536):
                written += part
        os.close(reading)
        _, errors = command.communicate(timeout=SECONDS)
        assert command.returncode == 0, errors
        return bytes(written)

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "ottla", *arguments]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "OTTLA_BOOTSTRAP_SERVER": self.bootstrap, "PYTHONPATH": str(Path(__file__).parents[2])}


def kill(*commands: subprocess.Popen[bytes]) -> None:
    """End commands that were started and, if the test went well, have ended; their pipes are closed."""
    for command in commands:
        command.kill()
        command.wait()
        for stream in (command.stdout, command.stderr, command.stdin):
            assert stream is not None
            stream.close()


def _run(arguments: tuple[str, ...], streams: tuple[int, int, int], bootstrap: str) -> None:
    """Become the command; never returns."""
    status = 70  # of a command that ends in no orderly way
    try:
        os.environ["OTTLA_BOOTSTRAP_SERVER"] = bootstrap
        for descriptor, stream in enumerate(streams):
            os.dup2(stream, descriptor)
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8")
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), encoding="utf-8", write_through=True)
        main(list(arguments), prog_name="ottla")
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(child: int) -> int:
    deadline = time.monotonic() + SECONDS
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError(f"the command did not end within {SECONDS} s")
        time.sleep(0.005)
