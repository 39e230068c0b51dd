"""Runs Azurite, Microsoft's server of Azure Blob Storage for tests, which checks signatures.

npm installs it once into `~/.cache/ottla-tests`. Several processes may ask at once: one installs it, and the others wait for its lock.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

import pytest

from tests.support.apache_kafka import free_ports, process_guard

VERSION: Final = "3.35.0"
ACCOUNT: Final = "devstoreaccount1"
ACCOUNT_KEY: Final = base64.b64encode(b"azurite-secret" * 4).decode()
_FOLDER: Final = Path.home() / ".cache" / "ottla-tests" / f"azurite-{VERSION}"
_PROGRAM: Final = Path("node_modules", ".bin", "azurite-blob")
_INSTALL_SECONDS: Final = 600
_START_SECONDS: Final = 60
_API_VERSION: Final = "2021-08-06"


class AzureServer:
    """A running server at `url`, which names the account, too."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/{ACCOUNT}"

    def keys(self, container: str, **more: str) -> dict[str, str]:
        """The keys of a broker whose remote store is this container."""
        keys = {
            "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.azure.AzureBlobStorage",
            "storage.azure.container.name": container,
            "storage.azure.account.name": ACCOUNT,
            "storage.azure.account.key": ACCOUNT_KEY,
            "storage.azure.endpoint.url": self.url,
            **more,
        }
        return {f"rsm.config.{name}": value for name, value in keys.items()}

    def make_container(self, container: str) -> None:
        """Creates a container."""
        self._ask("PUT", container)

    def remove_container(self, container: str) -> None:
        """Removes a container and its blobs."""
        self._ask("DELETE", container)

    def _ask(self, method: str, container: str) -> None:
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _API_VERSION}
        signed = [method, *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
        signed += [f"/{ACCOUNT}/{ACCOUNT}/{container}", "restype:container"]
        digest = hmac.new(base64.b64decode(ACCOUNT_KEY), "\n".join(signed).encode(), hashlib.sha256).digest()
        headers |= {"Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}", "Content-Length": "0"}
        with urlopen(Request(f"{self.url}/{container}?restype=container", method=method, headers=headers)) as answer:
            assert answer.status in (201, 202)


@contextmanager
def an_azure_server(directory: Path) -> Iterator[AzureServer]:
    """A server with its files in this directory. Skips the test if it cannot be had."""
    program = _installed()
    (port,) = free_ports(1)
    command = [str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(directory)]
    command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    log = directory / "azurite.log"
    with open(log, "wb") as output:
        environment = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}", "PATH": str(Path(_node()).parent)}
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=directory)
    process_guard().watch(server.pid)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(port):
            assert server.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, "azurite does not serve"
            time.sleep(0.02)
        yield AzureServer(port)
    finally:
        process_guard().end(server, signal.SIGTERM, 10)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


def _node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no Node.js (https://nodejs.org), which azurite needs")
    return found


def _installed() -> Path:
    """The program, installed if it is not there yet."""
    _node()
    _FOLDER.mkdir(parents=True, exist_ok=True)
    done = _FOLDER / ".complete"
    with open(_FOLDER / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            npm = shutil.which("npm")
            if npm is None:
                pytest.skip("there is no npm (https://nodejs.org), which would install azurite")
            command = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", f"--prefix={_FOLDER}", f"azurite@{VERSION}"]
            made = subprocess.run(command, cwd=_FOLDER, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
            if made.returncode != 0:
                pytest.skip(f"azurite cannot be installed: {made.stderr.strip()[-500:]}")
            done.touch()
    return _FOLDER / _PROGRAM
