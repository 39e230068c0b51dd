"""Writes the response to a ShareFetch in parts, so that records are sent from their file."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from ottla.protocol.cursors.response_writer import NodeEndpoints, Piece, Sized
from ottla.protocol.schema.wire import uvarint

_HEAD: Final = Struct(">ibih")  # correlation id, tagged fields of the header, throttle time, error code
_PARTITION: Final = Struct(">ih")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_LEADER: Final = Struct(">iib")
_ACQUIRED: Final = Struct(">qqhb")
_NODE: Final = Struct(">i")

_NULL: Final = b"\0"
_NO_TAGS: Final = b"\0"


class ShareFetchAnswer:
    """See the module. Every version of ShareFetch is flexible, and has the same response."""

    __slots__ = ("_pieces", "_written")

    def __init__(self, correlation_id: int, throttle_time_ms: int, error_code: int, lock_timeout_ms: int, topics: int) -> None:
        self._pieces: list[Piece] = []
        self._written = bytearray(_HEAD.pack(correlation_id, 0, throttle_time_ms, error_code))
        self._written += _NULL + _INT32.pack(lock_timeout_ms) + uvarint(topics + 1)

    def begin_topic(self, topic_id: bytes, partitions: int) -> None:
        """Begin a topic with this number of partitions."""
        self._written += topic_id + uvarint(partitions + 1)

    def put(
        self,
        index: int,
        error_code: int,
        acknowledge_error_code: int,
        leader: tuple[int, int],
        records: Sized | None,
        acquired: Sequence[tuple[int, int, int]],
    ) -> None:
        """Write a partition. `leader` is (id, epoch); `acquired` has (first offset, last offset, delivery count)."""
        written = self._written
        written += _PARTITION.pack(index, error_code) + _NULL + _INT16.pack(acknowledge_error_code) + _NULL + _LEADER.pack(*leader, 0)
        written += uvarint((0 if records is None else len(records)) + 1)
        if records is not None:
            self._pieces += (bytes(written), records)
            written = self._written = bytearray()
        written += uvarint(len(acquired) + 1)
        for first, last, count in acquired:
            written += _ACQUIRED.pack(first, last, count, 0)
        written += _NO_TAGS

    def end_topic(self) -> None:
        """End the topic after its last partition."""
        self._written += _NO_TAGS

    def finish(self, nodes: NodeEndpoints) -> list[Piece]:
        """The parts of the response, without its size."""
        written = self._written
        written += uvarint(len(nodes) + 1)
        for node_id, host, port, rack in nodes:
            written += _NODE.pack(node_id) + _text(host) + _NODE.pack(port) + (_NULL if rack is None else _text(rack)) + _NO_TAGS
        written += _NO_TAGS
        return [*self._pieces, bytes(written)]


def _text(value: str) -> bytes:
    data = value.encode()
    return uvarint(len(data) + 1) + data
