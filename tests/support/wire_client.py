"""Sends one declared message in one version and decodes the answer, for requests that no real client would send."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import Api, api

SECONDS = 90.0


class WireClient:
    """One connection. Every request has the next correlation id."""

    def __init__(self, port: int, seconds: float = SECONDS, client_id: str = "wire") -> None:
        self._client_id = client_id
        self._socket = socket.create_connection(("127.0.0.1", port), seconds)
        self._correlation_id = 0

    def ask(self, request: Message, version: int) -> Any:
        """The response message. Raises ConnectionError when the broker closes the connection instead."""
        assert request.SCHEMA.api_key is not None
        types = api(ApiKey(request.SCHEMA.api_key))
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=types.key, request_api_version=version, correlation_id=self._correlation_id, client_id=self._client_id
        )
        return self.send(header.encode(types.request_header_version(version)) + request.encode(version), types, version)

    def send(self, frame: bytes, types: Api, version: int) -> Any:
        """The response to a whole request, without its length. Raises ConnectionError."""
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", self._read(4))
        answer = self._read(length)
        _, offset = ResponseHeader.decode(answer, types.response_header_version(version), 0)
        return cast("Any", types.response.decode(answer, version, offset)[0])

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def a_wire_client(port: int, seconds: float = SECONDS, client_id: str = "wire") -> Iterator[WireClient]:
    """A connected client, closed at the end, which waits so long for each answer."""
    client = WireClient(port, seconds, client_id)
    try:
        yield client
    finally:
        client.close()
