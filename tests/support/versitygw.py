"""Runs versitygw, an S3 server in Go on a directory, which checks signatures and checksums.

It is compiled once with modules from Go's module proxy, into `~/.cache/ottla-tests`. Several processes may ask at once: one compiles it,
and the others wait for its lock.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.apache_kafka import free_ports, process_guard
from tests.support.go_programs import GO
from tests.support.moto_server import ACCESS_KEY, KEY_ID

VERSION: Final = "1.8.0"
_PACKAGE: Final = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
_FOLDER: Final = Path.home() / ".cache" / "ottla-tests" / f"versitygw-{VERSION}"
_COMPILE_SECONDS: Final = 900
_START_SECONDS: Final = 30


class NoVersitygwError(RuntimeError):
    """versitygw cannot be compiled on this machine; the message says why."""


@cache
def ensure_versitygw() -> Path:
    """The program, compiled if it is not there yet. Raises NoVersitygwError."""
    program = _FOLDER / "versitygw"
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with open(_FOLDER / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            if GO is None:
                raise NoVersitygwError("there is no Go (https://go.dev/dl), with which versitygw would be compiled")
            with tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, "GOTOOLCHAIN": "local", "GOBIN": folder, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
                command = [GO, "install", "-ldflags=-s -w", _PACKAGE]
                built = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
                if built.returncode != 0:
                    raise NoVersitygwError(f"versitygw cannot be compiled: {built.stderr.strip()[-500:]}")
                shutil.copy(Path(folder, "versitygw"), program.with_suffix(".new"))
            program.with_suffix(".new").rename(program)
    return program


def bucket_folder(directory: Path, bucket: str) -> Path:
    """The folder of a bucket, below that in which the server runs; without a name, of all buckets."""
    return directory / "buckets" / bucket


@contextmanager
def a_versitygw(directory: Path, *buckets: str, port: int | None = None) -> Iterator[str]:
    """The address of an S3 server on this directory, which has these buckets. Raises NoVersitygwError."""
    program = ensure_versitygw()
    data = bucket_folder(directory, "")
    data.mkdir(exist_ok=True)
    for bucket in buckets:
        bucket_folder(directory, bucket).mkdir()
    port = port or free_ports(1)[0]
    environment = {**os.environ, "ROOT_ACCESS_KEY": KEY_ID, "ROOT_SECRET_KEY": ACCESS_KEY}
    command = [str(program), "--quiet", "--port", f"127.0.0.1:{port}", "posix", str(data)]
    with open(directory / "versitygw.log", "wb") as output:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
    process_guard().watch(server.pid)
    try:
        _until_it_serves(server, port, directory / "versitygw.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process_guard().end(server, signal.SIGTERM, 10)


def _until_it_serves(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise NoVersitygwError(f"versitygw does not serve: {log.read_text(errors='replace')[-500:]}") from None
            time.sleep(0.01)
