"""Connects `ottla cluster` with the supervisor: one line of JSON each way over a unix socket in the cluster's
directory.

The socket is addressed through a descriptor of the directory, because the kernel accepts at most 107 bytes of address
and paths may be longer. Only the owner of the directory may connect: the socket's mode is 0600.
"""

import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

NAME = "control.sock"
_LONGEST_REQUEST = 65536
_LAST_ANSWERS_SECONDS = 2.0

Answer = dict[str, Any]


class NoSupervisor(Exception):
    """No supervisor answers in this directory; the text is for the user."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"no supervisor runs in {directory}; `ottla cluster up` starts one")


class NotAllowed(NoSupervisor):
    """The cluster in this directory belongs to another user."""

    def __init__(self, directory: Path) -> None:
        Exception.__init__(self, f"{directory}: this user may not reach a supervisor there; repeat the command as the user of the cluster")


@contextmanager
def _address(directory: Path) -> Iterator[str]:
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)


def ask(directory: Path, request: dict[str, Any], timeout_seconds: float) -> Answer:
    """The supervisor's answer. Raises NoSupervisor, NotAllowed, and TimeoutError when it does not answer in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_seconds)
        try:
            with _address(directory) as address:
                connection.connect(address)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
        except TimeoutError:
            raise
        except PermissionError:
            raise NotAllowed(directory) from None
        except OSError:
            raise NoSupervisor(directory) from None
    if not line.endswith(b"\n"):  # it ended before it had answered
        raise NoSupervisor(directory)
    answer: Answer = json.loads(line)
    return answer


class ControlServer:
    """Serves requests. The caller holds the directory's lock, so an existing socket is a leftover."""

    def __init__(self, directory: Path, on_request: Callable[[Answer], Awaitable[Answer]]) -> None:
        self._directory = directory
        self._on_request = on_request
        self._answering: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen."""
        (self._directory / NAME).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _address(self._directory) as address:
            listening.bind(address)
        os.chmod(self._directory / NAME, 0o600)
        self._server = await asyncio.start_unix_server(self._on_connection, sock=listening, limit=_LONGEST_REQUEST)

    async def close(self) -> None:
        """Stop listening, and finish the answers in progress."""
        self._server.close()
        (self._directory / NAME).unlink(missing_ok=True)
        if self._answering:
            await asyncio.wait(self._answering, timeout=_LAST_ANSWERS_SECONDS)

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        request: object = None
        try:
            with suppress(OSError, ValueError):  # the client went away, or sent no request: there is nothing to answer
                request = json.loads(await reader.readline())
            if isinstance(request, dict):
                answer = await self._answer(request)
                with suppress(OSError):  # the client went away
                    writer.write(json.dumps(answer).encode() + b"\n")
                    await writer.drain()
        finally:
            self._answering.discard(task)
            writer.close()

    async def _answer(self, request: Answer) -> Answer:
        try:
            return await self._on_request(request)
        except Exception as error:
            logger.exception("the command %r failed", request.get("command"))
            return {"error": f"{type(error).__name__}: {error}"}
