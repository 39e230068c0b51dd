"""Compiles a program of this folder when its source changed; the binary lies in benchmarks/build under a name with the source's hash."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_HERE = Path(__file__).parent
_BUILD = _HERE.parent / "build"
_FLAGS = ("-O2", "-Wall", "-Wextra", "-Werror")
_GO_SECONDS = 300


class NoCompilerError(RuntimeError):
    """No C compiler, or it refused the source; the message says which."""


class NoGoError(RuntimeError):
    """No Go, an older one than is needed, or its modules cannot be fetched; the message says which."""


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


def built_by_go(folder: str) -> Path:
    """The binary of a Go program, built now if need be; its modules come from Go's module proxy. Raises NoGoError."""
    source = _HERE / folder
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(source.iterdir()))).hexdigest()[:12]
    binary = _BUILD / f"{folder}-{digest}"
    if binary.exists():
        return binary
    if shutil.which("go") is None:
        raise NoGoError("there is no `go` on the PATH")
    _BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_BUILD) as scratch:
        fresh = Path(scratch) / folder
        command = ["go", "build", "-buildvcs=false", "-o", str(fresh), "."]
        environment = {**os.environ, "GOTOOLCHAIN": "local"}
        try:
            done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=_GO_SECONDS, check=False)
        except subprocess.TimeoutExpired as late:
            raise NoGoError(f"`{' '.join(command)}` has not ended after {_GO_SECONDS} s") from late
        if done.returncode != 0:
            raise NoGoError(f"`{' '.join(command)}` failed: {done.stderr.strip()[-500:]}")
        fresh.replace(binary)
    return binary
