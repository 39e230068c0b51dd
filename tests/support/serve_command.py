"""Runs the command `ottla serve` with any arguments, also refused ones.

`BrokerProcess` is for tests that need a broker; this is for tests of the command itself.
"""

import os
import re
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.secrets import secrets_in

SERVE = (sys.executable, "-m", "ottla", "serve")
SECONDS = 90.0


class Serving:
    """A running command with its first line."""

    def __init__(self, process: subprocess.Popen[str], line: str, log: Path) -> None:
        self._process = process
        self._log = log
        self.line = line
        self.ports = [int(port) for port in re.findall(r":(\d+)(?=[,\n])", line)]
        """Of its listeners, in their order."""

    @property
    def bootstrap(self) -> str:
        """host:port of the first listener."""
        return f"127.0.0.1:{self.ports[0]}"

    def log(self) -> str:
        """The log so far."""
        return self._log.read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self) -> int:
        """SIGTERM; the exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(SECONDS)

    def rest_of_output(self) -> str:
        """The output after the first line, once the command has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.read()


@contextmanager
def serving(
    directory: Path,
    *settings: str,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    script: str | None = None,
    start_seconds: float = SECONDS,
) -> Iterator[Serving]:
    """The command with these `key=value` settings, once it has printed its line. A shell's `script` may run it, as "$@"."""
    log = directory / "serve.log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [*([] if script is None else ["sh", "-c", script, "sh"]), *_command(settings, file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=directory,
            env=_env(environment),
        )
    try:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            assert selector.select(start_seconds), log.read_text()
        line = process.stdout.readline()
        assert line, log.read_text()
        yield Serving(process, line, log)
    finally:
        process.terminate()
        process.wait(SECONDS)
        assert process.stdout is not None
        process.stdout.close()
    assert not secrets_in(log.read_text(errors="replace")), f"{log} shows a secret"


def refused(directory: Path, *settings: str) -> str:
    """The one line with which the command refuses; it must print nothing else but what it did, and end with status 1."""
    done = subprocess.run(
        _command(settings, None), capture_output=True, text=True, cwd=directory, env=_env(None), timeout=SECONDS, check=False
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr, done.stderr
    assert not secrets_in(done.stderr), "the refusal shows a secret"
    (line,) = [line for line in done.stderr.splitlines() if not re.match(r"\[\d{4}-[^]]+\] INFO ", line)]
    assert line.startswith("ottla: ")
    return line


def tree(directory: Path) -> dict[str, bytes]:
    """Everything under a directory but its lock; the metadata store's files only by name, for they count sessions."""
    return {
        str(path.relative_to(directory)): b"" if path.is_dir() or "sqlite3" in path.name else path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.name != ".lock"
    }


def _command(settings: tuple[str, ...], file: Path | None) -> list[str]:
    files = [] if file is None else [str(file)]
    return [*SERVE, *files, *(argument for setting in settings for argument in ("--set", setting))]


def _env(environment: Mapping[str, str] | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    return {**inherited, "PYTHONPATH": str(Path(__file__).parents[2]), **(environment or {})}
