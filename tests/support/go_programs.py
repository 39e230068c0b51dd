"""Compiles the Go programs of `tests/support/go`. Tests that need one are skipped where Go or its modules cannot be had."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

GO = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
_QUICKLY = ("-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w")
"""Nothing is optimised: the standard library takes most of the time, and the programs run for seconds."""
_FRUGALLY = {"CGO_ENABLED": "0", "GOGC": "400"}
"""No C is compiled for the standard library, and the compiler collects its garbage less often: a sixth of the processor time."""
_PROGRAMS = Path(__file__).with_name("go")

needs_go = pytest.mark.skipif(GO is None, reason="there is no Go (https://go.dev/dl)")


def missing_go() -> str:
    """The reason why this machine cannot compile the programs, with the remedy; empty if it can, given their modules."""
    needed = max((re.search(r"^go (\S+)", each.read_text(), re.MULTILINE)[1] for each in _PROGRAMS.glob("*/go.mod")), key=_numbers)
    if GO is None:
        return f"install Go {needed} or a later one: https://go.dev/dl"
    said = subprocess.run([GO, "version"], env={**os.environ, "GOTOOLCHAIN": "local"}, capture_output=True, text=True, check=False).stdout
    found = re.search(r"\bgo(\d[\d.]*)", said)
    if found is not None and _numbers(found[1]) >= _numbers(needed):
        return ""
    return f"install Go {needed} or a later one: https://go.dev/dl; {GO} is {'of no known version' if found is None else found[1]}"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.rstrip(".").split(".")]


@contextmanager
def _alone() -> Iterator[None]:
    """No other process compiles meanwhile: both would compile the packages that their programs share."""
    folder = os.open(_PROGRAMS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def compiled_program(name: str, directory: Path) -> Path:
    """The program of the folder `name`, compiled into the directory. Skips the test when Go is too old, or cannot fetch the modules."""
    return _compiled(name, directory / name, "build", ".")


def compiled_tests(name: str, package: str, directory: Path) -> Path:
    """The tests of a package that the program of the folder `name` imports. Skips the test as `compiled_program` does."""
    return _compiled(name, directory / package.replace("/", "-"), "test", "-c", "-vet=off", package)


def _compiled(name: str, binary: Path, command: str, *arguments: str) -> Path:
    assert GO is not None
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", **_FRUGALLY}
    with _alone():
        built = subprocess.run(
            [GO, command, *_QUICKLY, "-o", str(binary), *arguments],
            cwd=_PROGRAMS / name,
            env=environment,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    if built.returncode != 0 and ("requires go >= " in built.stderr or "dial tcp" in built.stderr):
        pytest.skip(f"{name} cannot be compiled: {built.stderr.strip()}")
    assert built.returncode == 0, built.stderr
    return binary
