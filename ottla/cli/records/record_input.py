"""Splits the bytes from a file descriptor into records, without waiting longer than a lingering batch may.

`pieces` yields the parts between delimiters, and None when nothing came within the given time.
"""

import os
import select
from collections.abc import Callable, Iterator

from ottla.client.producer import OutgoingRecord
from ottla.protocol.records.reader import Header

_READ_BYTES = 256 * 1024
MAX_PIECE_BYTES = 256 * 1024 * 1024


class PieceTooLarge(ValueError):
    """No delimiter within the largest possible message."""


def pieces(descriptor: int, delimiter: bytes, patience: Callable[[], float | None]) -> Iterator[bytes | None]:
    """The parts of the stream; a non-empty last one without a delimiter counts.

    `patience` returns the seconds that the next read may take; None means without limit. Raises PieceTooLarge, OSError.
    """
    rest = bytearray()
    while True:
        if not _readable(descriptor, patience()):
            yield None
            continue
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            break
        searched = max(len(rest) - len(delimiter) + 1, 0)
        rest += data
        if rest.find(delimiter, searched) >= 0:  # a part of many reads is copied once, at its end
            *whole, last = bytes(rest).split(delimiter)
            rest = bytearray(last)
            yield from whole
        if len(rest) > MAX_PIECE_BYTES:
            raise PieceTooLarge(f"no delimiter within {MAX_PIECE_BYTES} bytes")
    if rest:
        yield bytes(rest)


def _readable(descriptor: int, seconds: float | None) -> bool:
    ready, _, _ = select.select([descriptor], [], [], None if seconds is None else max(seconds, 0.0))
    return bool(ready)


class LineReader:
    """Converts parts to records: splits off keys, and adds the options for all records of a command."""

    def __init__(
        self,
        *,
        key: bytes | None,
        key_delimiter: bytes | None,
        headers: tuple[Header, ...],
        partition: int | None,
        timestamp_ms: int | None,
        empty_is_null: bool,
    ) -> None:
        self._key = key
        self._key_delimiter = key_delimiter
        self._headers = headers
        self._partition = partition
        self._timestamp_ms = timestamp_ms
        self._empty_is_null = empty_is_null

    def record(self, piece: bytes) -> OutgoingRecord:
        """The record of a part; without the key delimiter in it, all of it is the value."""
        key, value = self._key, piece
        if self._key_delimiter is not None:
            before, found, after = piece.partition(self._key_delimiter)
            if found:
                key, value = before, after
        return OutgoingRecord(self._null(value), self._null(key), self._headers, self._partition, self._timestamp_ms)

    def complete(self, record: OutgoingRecord) -> OutgoingRecord:
        """A record from another source, with the options for all records."""
        return record._replace(
            key=record.key if record.key is not None else self._key,
            headers=record.headers + self._headers,
            partition=record.partition if self._partition is None else self._partition,
            timestamp_ms=record.timestamp_ms if self._timestamp_ms is None else self._timestamp_ms,
        )

    def _null(self, data: bytes | None) -> bytes | None:
        return None if self._empty_is_null and not data else data
