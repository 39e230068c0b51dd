"""Compiles a C program of this folder when its source changed; the binary lies in benchmarks/build under a name with the source's hash."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_HERE = Path(__file__).parent
_BUILD = _HERE.parent / "build"
_FLAGS = ("-O2", "-Wall", "-Wextra", "-Werror")


class NoCompilerError(RuntimeError):
    """No C compiler, or it refused the source; the message says which."""


def compiled(name: str, *libraries: str) -> Path:
    """The binary of `name`.c, compiled now if need be. Raises NoCompilerError."""
    source = _HERE / f"{name}.c"
    digest = hashlib.sha256(source.read_bytes() + " ".join([*_FLAGS, *libraries]).encode()).hexdigest()[:12]
    binary = _BUILD / f"{name}-{digest}"
    if binary.exists():
        return binary
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompilerError("the load generator is written in C and there is no compiler: install gcc or clang, or set CC")
    _BUILD.mkdir(exist_ok=True)
    # Beside its final place and renamed: two processes may compile at once, and a half-written binary must never be run.
    with tempfile.TemporaryDirectory(dir=_BUILD) as scratch:
        fresh = Path(scratch) / name
        command = [compiler, *_FLAGS, "-o", str(fresh), str(source), *libraries]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NoCompilerError(f"`{' '.join(command)}` failed:\n{done.stderr}")
        fresh.replace(binary)
    return binary
