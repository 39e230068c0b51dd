"""Replays the odd and bad requests of tests/golden/wire/bad-input.jsonl to another broker, and compares the answers.

The recording was made with three brokers. Ids, ports and topic ids differ between brokers, so a request is rewritten before it is sent, and
both answers are normalized before they are compared.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import cache
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.message import Struct as ProtocolStruct
from ottla.protocol.schema.registry import api
from ottla.protocol.uuid import from_text

BAD_INPUT = Path(__file__).parents[1] / "golden" / "wire" / "bad-input.jsonl"
RECORDED_TOPIC_ID = from_text("WDseS1zWRQO1PhQ2_19fAw")
"""The id that the topic `bad` had in the recording."""

_SIZE = Struct(">i")
_AT_BROKER = " at broker "


class Case(NamedTuple):
    """One recorded request and what became of it. `broker` is the one that was asked, where all three were."""

    name: str
    api_key: ApiKey | None
    version: int
    sent: bytes
    outcome: str
    response: bytes | None
    stays_open: bool
    broker: int | None

    @property
    def question(self) -> str:
        """The name without the broker."""
        return self.name.partition(_AT_BROKER)[0]


class Outcome(NamedTuple):
    """The outcome of a request: "response", "closed" or "no answer"."""

    kind: str
    response: bytes | None = None
    stays_open: bool = False


@cache
def bad_input() -> tuple[Case, ...]:
    """All 236, in the order in which they were sent."""
    return tuple(_case(json.loads(line)) for line in BAD_INPUT.read_text().splitlines())


def _case(recorded: dict[str, Any]) -> Case:
    name: str = recorded["case"]
    sent = bytes.fromhex(recorded["sent_hex"])
    # The one that was too long to be recorded whole goes on with zeros: a value of zeros, no headers, no tagged fields.
    sent += bytes(recorded["sent_bytes"] - len(sent))
    outcome = recorded["outcome"]
    _, _, broker = name.partition(_AT_BROKER)
    return Case(
        name,
        None if recorded["api_key"] is None else ApiKey(recorded["api_key"]),
        recorded["version"],
        sent,
        "no answer" if outcome.startswith("no answer") else outcome,
        bytes.fromhex(recorded["response_hex"]) if recorded.get("response_hex") else None,
        recorded.get("connection_after") == "open",
        int(broker) if broker.isdigit() else None,
    )


def ask(port: int, sent: bytes, wait_seconds: float, answer_seconds: float = 10.0) -> Outcome:
    """Send bytes on a connection of their own. `wait_seconds` is how long to wait where no answer is expected."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(wait_seconds or answer_seconds)
        try:
            connection.sendall(sent)
            response = receive(connection)
            connection.settimeout(answer_seconds)
            return Outcome("response", response, _answers(connection))
        except TimeoutError:
            return Outcome("no answer")
        except (EOFError, ConnectionError):
            return Outcome("closed")


def request_frame(request: Message, api_key: ApiKey, version: int, client_id: str = "test") -> bytes:
    """A request as a client sends it, with its length."""
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=1, client_id=client_id)
    body = header.encode(api(api_key).request_header_version(version)) + request.encode(version)
    return _SIZE.pack(len(body)) + body


def exchange(port: int, request: Message, api_key: ApiKey, version: int) -> Any:
    """Ask on a connection of its own; the decoded answer."""
    outcome = ask(port, request_frame(request, api_key, version), 0)
    assert outcome.response is not None, f"{api_key.name} v{version}: {outcome.kind}"
    return decode(outcome.response, api_key, version)


def receive(connection: socket.socket) -> bytes:
    """One frame. Raises EOFError when the connection is closed instead."""
    (size,) = _SIZE.unpack(_exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _answers(connection: socket.socket) -> bool:
    try:
        connection.sendall(request_frame(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0))
        receive(connection)
    except (EOFError, ConnectionError):
        return False
    return True


def decode(response: bytes, api_key: ApiKey, version: int) -> Message:
    """A response with its header."""
    known = api(api_key)
    if api_key is ApiKey.API_VERSIONS and int.from_bytes(response[4:6]) == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    _, offset = ResponseHeader.decode(response, known.response_header_version(version))
    message, end = known.response.decode(response, version, offset)
    assert end == len(response), f"{len(response) - end} bytes behind {api_key.name} v{version}"
    return message


def correlation_id(response: bytes) -> int:
    """The first field of every response."""
    return int(_SIZE.unpack_from(response)[0])


Rewrite = Callable[[str, Any], Any]
"""(name of a field, its value) -> the value to compare."""


def comparable(value: Any, rewrite: Rewrite, name: str = "") -> Any:
    """A message as nested dicts, every field through `rewrite`."""
    if isinstance(value, ProtocolStruct):
        fields = {field.name: comparable(getattr(value, field.name), rewrite, field.name) for field in value.SCHEMA.fields}
        return rewrite(name, fields)
    if isinstance(value, list):
        return rewrite(name, [comparable(each, rewrite, name + "[]") for each in value])
    return rewrite(name, bytes(value) if isinstance(value, memoryview) else value)
