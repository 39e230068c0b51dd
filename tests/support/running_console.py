"""Runs `ottla console` as users do, and asks its API as its page does."""

import json
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

SECONDS = 60.0


class Console:
    """The API of a running console."""

    def __init__(self, address: str, context: ssl.SSLContext | None) -> None:
        self.address = address
        self._context = context
        self.cookie = ""
        self._token = ""

    def get(self, path: str, status: int = 200) -> Any:
        """The answer to GET, which must have this status."""
        return self.send("GET", path, None, status)

    def change(self, method: str, path: str, body: object, status: int = 200) -> Any:
        """The answer to a change, which must have this status."""
        return self.send(method, path, json.dumps(body).encode(), status)

    def log_in(self, user: str, password: str) -> None:
        """Begin a session, and use it from now on."""
        with self.open("POST", "session", json.dumps({"user": user, "password": password}).encode()) as answer:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
            self._token = json.loads(answer.read())["token"]

    def send(self, method: str, path: str, body: bytes | None, status: int) -> Any:
        """The JSON of an answer with this status."""
        if body is not None and not self._token:
            self._token = self.get("session")["token"]
        try:
            with self.open(method, path, body) as answer:
                found, data = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                found, data = error.code, error.read()
        assert found == status, data
        return json.loads(data)

    def open(self, method: str, path: str, body: bytes | None = None) -> HTTPResponse:
        """An answer that is still to be read."""
        headers = {"content-type": "application/json", "x-csrf-token": self._token, "cookie": self.cookie}
        request = urllib.request.Request(f"{self.address}api/v1/{path}", data=body, method=method, headers=headers)
        answer = urllib.request.urlopen(request, timeout=SECONDS, context=self._context)
        assert isinstance(answer, HTTPResponse)
        return answer


@contextmanager
def a_console(bootstrap: str, *options: str, trusted: Path | None = None, variables: Mapping[str, str] | None = None) -> Iterator[Console]:
    """A console with more options and environment variables; `trusted` is the certificate to trust."""
    command = [sys.executable, "-m", "ottla", "console", "-b", bootstrap, "--listen", "127.0.0.1:0", "--timeout", "30", *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **(variables or {})}
    context = None if trusted is None else ssl.create_default_context(cafile=trusted)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(r"ottla console is ready: (https?://127\.0\.0\.1:\d+/)\n", process.stdout.readline())
            assert found is not None
            yield Console(found[1], context)
        finally:
            process.terminate()
            assert process.wait(SECONDS) in (0, -15)
