"""Compiles the Go programs of `tests/support/go`. Tests that need one are skipped where Go or its modules cannot be had."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

GO = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
_QUICKLY = ("-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w")
"""Nothing is optimised: the standard library takes most of the time, and the programs run for seconds."""
_PROGRAMS = Path(__file__).with_name("go")

needs_go = pytest.mark.skipif(GO is None, reason="there is no go")


def compiled_program(name: str, directory: Path) -> Path:
    """The program of the folder `name`, compiled into the directory. Skips the test when Go is too old, or cannot fetch the modules."""
    assert GO is not None
    binary = directory / name
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    built = subprocess.run(
        [GO, "build", *_QUICKLY, "-o", str(binary), "."],
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
