"""The commands of `ottla` as users run them: processes with pipes, against any broker."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 60.0


class Ended(NamedTuple):
    """What a command left."""

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
        """Start a command that goes on until it is told to stop."""
        return subprocess.Popen(
            self._command(arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._environment()
        )

    def __call__(self, *arguments: str, input: str | bytes = b"", status: int = 0) -> Ended:
        """Run a command to its end, which must be with this status."""
        data = input.encode() if isinstance(input, str) else input
        done = subprocess.run(
            self._command(arguments), input=data, capture_output=True, env=self._environment(), timeout=SECONDS, check=False
        )
        ended = Ended(done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode())
        assert ended.status == status, ended
        assert "Traceback" not in ended.err, ended.err
        return ended

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "broker", *arguments]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "OTTLA_BOOTSTRAP_SERVER": self.bootstrap, "PYTHONPATH": str(Path(__file__).parents[2])}
