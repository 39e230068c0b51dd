"""A blocking client for what a benchmark asks of a broker besides load: its versions, topics made and dropped, topic ids.

It speaks the frames of benchmarks/frames.py and reads only what it needs from the answers, so it works with any broker.
"""

import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from uuid import UUID

from benchmarks import frames

_TIMEOUT_S = 60.0


class BrokerRefusedError(RuntimeError):
    """The broker answered with an error code, or not at all."""


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: UUID
    partitions: int


class Admin:
    """One connection to a broker."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = socket.create_connection((host, port), _TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """api key -> (lowest, highest version) the broker lists."""
        answer = _Reader(self._ask(frames.api_versions()))
        _check(answer.int16(), "ApiVersions")
        found = {}
        for _ in range(answer.compact_length()):
            key, lowest, highest = answer.int16(), answer.int16(), answer.int16()
            answer.tags()
            found[key] = (lowest, highest)
        return found

    def create_topic(self, name: str, partitions: int, replication_factor: int = 1, configs: Mapping[str, str] | None = None) -> Topic:
        """Create a topic and wait until every partition has a leader. Raises BrokerRefusedError."""
        answer = _Reader(self._ask(frames.create_topic(name, partitions, replication_factor, configs or {})), flexible_header=True)
        answer.skip(4)
        answer.compact_length()
        answer.compact_string()
        answer.skip(16)
        code = answer.int16()
        _check(code, f"CreateTopics {name}", answer.compact_string() if code else None)
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            topic, ready = self._describe(name)
            if topic is not None and ready and topic.partitions == partitions:
                return topic
            if time.monotonic() > deadline:
                raise BrokerRefusedError(f"topic {name} has no leaders {_TIMEOUT_S:.0f} s after its creation")
            time.sleep(0.02)

    def delete_topic(self, name: str) -> None:
        """Raises BrokerRefusedError."""
        answer = _Reader(self._ask(frames.delete_topic(name)), flexible_header=True)
        answer.skip(4)
        answer.compact_length()
        answer.compact_string()
        answer.skip(16)
        _check(answer.int16(), f"DeleteTopics {name}")

    def _describe(self, name: str) -> tuple[Topic | None, bool]:
        """The topic as Metadata tells it, and whether all its partitions have a leader."""
        answer = _Reader(self._ask(frames.metadata([name])), flexible_header=True)
        answer.skip(4)
        for _ in range(answer.compact_length()):
            answer.skip(4)
            answer.compact_string()
            answer.skip(4)
            answer.compact_string()
            answer.tags()
        answer.compact_string()
        answer.skip(4)
        answer.compact_length()
        code = answer.int16()
        answer.compact_string()
        topic_id = UUID(bytes=answer.take(16))
        answer.skip(1)
        partitions = answer.compact_length()
        ready = code == 0
        for _ in range(partitions):
            partition_code, _index, leader, _epoch = answer.int16(), answer.int32(), answer.int32(), answer.int32()
            for _ in range(3):
                answer.skip(4 * answer.compact_length())
            answer.tags()
            ready = ready and partition_code == 0 and leader >= 0
        return (Topic(name, topic_id, partitions) if code == 0 else None), ready

    def _ask(self, request: bytes) -> bytes:
        """The answer after its correlation id."""
        self._connection.sendall(request)
        (length,) = struct.unpack(">i", self._receive(4))
        return self._receive(length)[4:]

    def _receive(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            more = self._connection.recv(count - len(received))
            if not more:
                raise BrokerRefusedError("the broker closed the connection instead of answering")
            received += more
        return received


class _Reader:
    """Fields off the front of an answer."""

    def __init__(self, data: bytes, *, flexible_header: bool = False) -> None:
        self._data = data
        self._at = 1 if flexible_header else 0  # the empty tagged fields of response header 1; ApiVersions answers with header 0

    def take(self, count: int) -> bytes:
        self.skip(count)
        return self._data[self._at - count : self._at]

    def skip(self, count: int) -> None:
        self._at += count

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def compact_length(self) -> int:
        """Elements of a compact array; 0 for null."""
        return max(self._uvarint() - 1, 0)

    def compact_string(self) -> str | None:
        length = self._uvarint() - 1
        return None if length < 0 else self.take(length).decode()

    def tags(self) -> None:
        for _ in range(self._uvarint()):
            self._uvarint()
            self.skip(self._uvarint())

    def _uvarint(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7


def _check(code: int, asked: str, message: str | None = None) -> None:
    if code:
        raise BrokerRefusedError(f"{asked}: error code {code}{f' ({message})' if message else ''}")
