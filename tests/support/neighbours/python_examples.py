"""Runs the example programs of Python clients against a broker, as their authors wrote them but for the address.

faust-streaming has its examples in its archive of sources. pip fetches that, and installs it into an environment of its own, because it
needs another click than the command line of Ottla. The archives of aiokafka and confluent-kafka have no examples: OTTLA_CLIENT_EXAMPLES
names a folder with clones of their repositories, `aiokafka` and `confluent-kafka-python`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.broker_process import eventually

FAUST_VERSION = "0.15.3"
FAUST = Path(os.environ.get("NEIGHBOUR_LIBS") or Path.home() / ".cache" / "ottla") / f"faust-streaming-{FAUST_VERSION}"
"""The folder of the environment, filled or not; its examples are in `examples`."""
SECONDS = 120.0
HARD_CODED = "localhost:9092"
"""The address in most examples."""


def examples_of(repository: str) -> Path:
    """The folder `examples` of a clone. Skips the test without one."""
    clones = os.environ.get("OTTLA_CLIENT_EXAMPLES")
    if clones is None:
        pytest.skip("OTTLA_CLIENT_EXAMPLES names no folder with clones of aiokafka and confluent-kafka-python")
    found = Path(clones, repository, "examples")
    assert found.is_dir(), f"there is no folder {found}"
    return found


def faust() -> Path:
    """The folder with faust-streaming and its examples. Skips the test if pip cannot fetch it."""
    if not FAUST.exists():
        FAUST.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=FAUST.parent) as folder:
            made = Path(folder, FAUST.name)
            venv.create(made, symlinks=True)
            requirement = f"faust-streaming=={FAUST_VERSION}"
            _pip(made, "download", "--no-deps", "--no-binary", "faust-streaming", "--dest", folder, requirement)
            subprocess.run(["tar", "--extract", "--file", next(Path(folder).glob("*.tar.gz")), "--directory", folder], check=True)
            shutil.copytree(Path(folder, f"faust_streaming-{FAUST_VERSION}", "examples"), made / "examples")
            _pip(made, "install", "--no-compile", requirement, "setuptools<81")
            if not FAUST.exists():  # another process may have been faster
                made.rename(FAUST)
    return FAUST


def _pip(environment: Path, *arguments: str) -> None:
    python = environment / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"pip cannot fetch faust-streaming: {done.stderr.strip().splitlines()[-1]}")


class Example:
    """A running example. Its output is in a file of its folder."""

    def __init__(
        self,
        folder: Path,
        source: Path,
        *arguments: str,
        replaced: Mapping[str, str],
        python: str = sys.executable,
        given: str = "",
    ) -> None:
        """Starts a copy of the program, with texts replaced, in a folder. `given` is its standard input."""
        text = source.read_text(encoding="utf-8")
        for old, new in replaced.items():
            assert old in text, f"{source} does not have {old!r}"
            text = text.replace(old, new)
        program = folder / source.name
        program.write_text(text, encoding="utf-8")
        self._output = folder / f"{source.stem}.out"
        (folder / "given").write_text(given)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with self._output.open("ab") as output, (folder / "given").open("rb") as reading:
            self._process = subprocess.Popen(
                [python, "-u", program, *arguments], cwd=folder, env=environment, stdin=reading, stdout=output, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> Example:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it, however it is doing."""
        self._process.kill()
        self._process.wait()

    @property
    def output(self) -> str:
        """Its output so far."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def says(self, pattern: str, meanwhile: Callable[[], object] = lambda: None) -> re.Match[str]:
        """Wait until its output has the pattern; `meanwhile` is called again and again. Fails if it ends before."""

        def said() -> re.Match[str] | None:
            found = re.search(pattern, self.output)
            assert found or self._process.poll() is None, f"it has ended: {self.output}"
            if not found:
                meanwhile()
            return found

        found = eventually(said, SECONDS, f"{pattern!r} in what {self._output.stem} says")
        assert isinstance(found, re.Match)
        return found

    def interrupt(self) -> None:
        """Ctrl-C; it ends."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(SECONDS)

    def ends(self, status: int = 0) -> str:
        """Wait until it has ended with this status; returns all that it said."""
        ended = self._process.wait(SECONDS)
        assert ended == status, self.output
        return self.output
