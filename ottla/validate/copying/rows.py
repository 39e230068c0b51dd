"""Transforms one row: the same row, marked as copied, with its payload reversed and a new checksum.

ottla/validate/records.py describes the bytes, and checks them in Spark.
"""

import zlib

_MARK_BYTES = 8
_CHECKED_BYTES = 42
_CHECKSUM = slice(43, 51)
_HEADER_BYTES = 52


def copied(key: bytes | None, value: bytes | None, mark: bytes) -> bytes | None:
    """The value of the copy, with another mark of eight bytes. A value whose checksum is wrong stays as it is, so that Spark finds it."""
    if value is None or value[_CHECKSUM] != _checksum(value[:_CHECKED_BYTES], key, value[_HEADER_BYTES:]):
        return value
    head, payload = mark + value[_MARK_BYTES:_CHECKED_BYTES], value[: _HEADER_BYTES - 1 : -1]
    return b"%s|%s|%s" % (head, _checksum(head, key, payload), payload)


def _checksum(head: bytes, key: bytes | None, payload: bytes) -> bytes:
    return b"%08x" % zlib.crc32(b"%s%s|%s" % (head, key or b"", payload))
