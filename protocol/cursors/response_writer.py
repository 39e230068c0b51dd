"""Writes a response of topics and partitions into one buffer while the request is served.

The number of partitions of a topic is known only at its end. One byte is reserved for the count. A longer count is inserted when the
response is finished, as the records of a Fetch are. Until then everything in the buffer keeps its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Protocol

from ottla.protocol.cursors import fields
from ottla.protocol.schema.wire import tagged_fields, uvarint


class Sized(Protocol):
    """Records that are sent from a region of a file, without a copy."""

    def __len__(self) -> int: ...


Piece = bytes | Sized
NodeEndpoints = Sequence[tuple[int, str, int, str | None]]
"""(node id, host, port, rack) of brokers."""

_ROOM_BYTES = 256
"""Initial size of the buffer, in bytes; enough for a few partitions. It is doubled when it is full."""

_int16 = Struct(">h").pack
_int32 = Struct(">i").pack


class ResponseWriter:
    """Base of the writers of responses: the header, topics, counts, and the buffer. Only they use it."""

    __slots__ = (
        "_at", "_count", "_count_at", "_has_topic_ids", "_inserted", "_is_in_order", "_opened", "_room", "_topic", "_topics", "_topics_at",
        "is_flexible", "version",
    )  # fmt: skip

    def _begin(self, version: int, correlation_id: int, is_flexible: bool, has_topic_ids: bool) -> None:
        """Write the header. Called at the beginning of `__init__`; see `RequestReader`."""
        self.version = version
        self.is_flexible = is_flexible
        self._has_topic_ids = has_topic_ids
        self._room = bytearray(_ROOM_BYTES)
        self._inserted: list[tuple[int, Piece]] | None = None
        self._is_in_order = True
        self._opened: bytes | None = None
        self._topic: bytes | None = None
        self._topics = self._topics_at = 0
        self._count = self._count_at = 0
        fields.put_int32(self._room, 0, correlation_id)
        self._at = 5 if is_flexible else 4  # the header of flexible versions has tagged fields: none

    def begin_topic(self, topic: bytes) -> None:
        """Begin a topic, given by its name in UTF-8 or its id. A topic without results is not written."""
        self._topic = self._opened if topic == self._opened else topic

    # -- for subclasses ------------------------------------------------------------------------------------------------------

    def _begin_topics(self) -> None:
        """Begin the array of topics."""
        self._topics_at = self._at
        self._at += 1 if self.is_flexible else 4

    def _begin_element(self, size: int) -> None:
        """Make room for a partition of at least `size` bytes; `_put` makes room for the rest."""
        if self._topic is not self._opened:
            self._open_topic()
        self._make_room(size)
        self._count += 1

    def _open_topic(self) -> None:
        self._close_topic()
        topic = self._topic
        assert topic is not None
        self._opened = topic
        self._make_room(len(topic) + 10)
        room = self._room
        at = self._at
        if not self._has_topic_ids:
            if self.is_flexible:
                at = fields.put_uvarint(room, at, len(topic) + 1)
            else:
                fields.put_int16(room, at, len(topic))
                at += 2
        at = fields.put_bytes(room, at, topic)
        self._topics += 1
        self._count = 0
        self._count_at = at
        self._at = at + (1 if self.is_flexible else 4)

    def _close_topic(self) -> None:
        if self._opened is None:
            return
        self._set_count(self._count_at, self._count)
        if self.is_flexible:
            self._put(b"\0")
        self._opened = None

    def _end_topics(self) -> None:
        """End the array of topics."""
        self._close_topic()
        self._set_count(self._topics_at, self._topics)

    def _set_count(self, at: int, count: int) -> None:
        """Write a count into the place reserved at the start of its array."""
        if not self.is_flexible:
            fields.put_int32(self._room, at, count)
        elif count < 0x7F:
            fields.put_uvarint(self._room, at, count + 1)
        else:
            number = uvarint(count + 1)
            fields.put_bytes(self._room, at, number[:1])
            self._insert(at + 1, number[1:])
            self._is_in_order = False

    def _put_count(self, count: int) -> None:
        """Write the count of an array whose length is known at its start."""
        self._put(count_of(count, self.is_flexible))

    def _put(self, value: bytes) -> None:
        self._make_room(len(value))
        self._at = fields.put_bytes(self._room, self._at, value)

    def _insert(self, at: int, value: Piece) -> None:
        """Insert bytes or records at a position when the response is finished."""
        if self._inserted is None:
            self._inserted = []
        self._inserted.append((at, value))

    def _make_room(self, size: int) -> None:
        missing = self._at + size - len(self._room)
        if missing > 0:
            self._room += bytes(max(missing, len(self._room)))

    def _pieces(self) -> list[Piece]:
        """The written bytes, cut at every insertion, with the inserted pieces between them."""
        pieces: list[Piece] = []
        start = 0
        inserted = self._inserted or []
        if not self._is_in_order:
            inserted.sort(key=_position)
        for at, value in inserted:
            pieces.append(fields.cut(self._room, start, at))
            pieces.append(value)
            start = at
        pieces.append(fields.cut(self._room, start, self._at))
        return pieces

    def _joined(self) -> bytes:
        """The written bytes with the insertions, if all insertions are bytes."""
        if self._inserted is None:
            return fields.cut(self._room, 0, self._at)
        return b"".join(self._pieces())  # type: ignore[arg-type]  # no records were inserted


def _position(inserted: tuple[int, Piece]) -> int:
    return inserted[0]


def count_of(count: int, is_flexible: bool) -> bytes:
    """The count of an array."""
    return uvarint(count + 1) if is_flexible else _int32(count)


def string(value: str | None, is_flexible: bool) -> bytes:
    """A nullable string after its length."""
    if value is None:
        return b"\0" if is_flexible else b"\xff\xff"
    text = value.encode()
    return (uvarint(len(text) + 1) if is_flexible else _int16(len(text))) + text


def node_endpoints_field(nodes: NodeEndpoints) -> bytes:
    """The section of tagged fields of a response that names brokers; empty if there are none."""
    if not nodes:
        return b"\0"
    parts = [uvarint(len(nodes) + 1)]
    for node_id, host, port, rack in nodes:
        parts += (_int32(node_id), string(host, True), _int32(port), string(rack, True), b"\0")
    return tagged_fields([(0, b"".join(parts))], None)
