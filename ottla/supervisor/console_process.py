"""Runs `ottla console` beside the brokers of a supervisor, and ends with it. A console that ends on its own is not started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from ottla.storage.disk.filesystem import opener
from ottla.supervisor.layout import Layout

_PROFILE: Final = "OTTLA_PROFILE"
"""The variable with the default of `--profile`; a profile has an address and a credential."""
STOP_SECONDS: Final = 10.0
"""Time for the console to stop before it is killed, seconds."""


class ConsoleFailed(Exception):
    """The console did not start; the text is for the operator."""


class ConsoleProcess:
    """One run of the console. Its errors and audit lines are in `console.log` of the cluster's directory."""

    def __init__(self, layout: Layout, listen: str) -> None:
        """Start the console, and wait until it listens, which needs no broker. Raises ConsoleFailed."""
        arguments = [str(os.getpid()), "console", "--bootstrap-server", layout.bootstrap, "--listen", listen]
        if layout.command_config is not None:
            arguments += ["--command-config", str(layout.command_config)]
        environment = {name: value for name, value in os.environ.items() if name != _PROFILE}  # of another cluster
        log_file = layout.directory / "console.log"
        with open(log_file, "ab", opener=opener) as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ottla.cli.supervised", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                text=True,
                process_group=0,  # Ctrl-C in a terminal reaches the supervisor alone
            )
        assert self._process.stdout is not None
        self.line = self._process.stdout.readline().rstrip("\n")
        """The line that the console prints once it listens; the address is its last word."""
        if not self.line:
            self.stop()
            raise ConsoleFailed(_reason(log_file, begin))

    @property
    def address(self) -> str:
        """The URL of the page."""
        return self.line.rpartition(" ")[2]

    def stop(self) -> None:
        """End the process, and return when it has ended."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _reason(log_file: Path, begin: int) -> str:
    with log_file.open("rb") as log:
        log.seek(begin)
        lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("ottla: ").removeprefix("Error: ") if lines else f"the console ended; {log_file} has its log"
