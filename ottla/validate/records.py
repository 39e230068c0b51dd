"""Encodes and parses the value of a record: a text header of fixed width, then the payload.

    00000001|000003|000000312345|1700000000000|5f3a9c01|payload
    run      stream sequence     event time ms crc32

`sequence` counts all rows of a run from 0; `stream` is the producer that wrote the record. Within a stream, a partition keeps the order of
the sequence. The checksum covers the header before it, the key and the payload.
"""

from pyspark.sql import Column
from pyspark.sql import functions as fn

HEADER_BYTES = 52
_STREAM_DIGITS = 6
_SEQUENCE_DIGITS = 12
_BLOCK = 32  # characters of one MD5 sum in hexadecimal
_MOST_BLOCKS = 16

NOW_MS = "java_method('java.lang.System', 'currentTimeMillis')"
"""The clock for each row; current_timestamp() is one instant for a whole query."""


def payload_of(sequence: Column, seed: int, size: int) -> Column:
    """Text of `size` characters that looks random and follows from the seed; it repeats after 512 characters."""
    blocks = max(1, min(-(-size // _BLOCK), _MOST_BLOCKS))
    text = fn.concat(*(fn.md5(fn.concat_ws(":", fn.lit(f"{seed}.{block}"), sequence).cast("binary")) for block in range(blocks)))
    return fn.substring(fn.repeat(text, -(-size // (blocks * _BLOCK))), 1, size)


def value_of(run: str, stream: Column, sequence: Column, event_ms: Column, key: Column, payload: Column) -> Column:
    """The bytes of a record's value."""
    head = fn.concat_ws(
        "|",
        fn.lit(run),
        fn.lpad(stream.cast("string"), _STREAM_DIGITS, "0"),
        fn.lpad(sequence.cast("string"), _SEQUENCE_DIGITS, "0"),
        event_ms.cast("string"),
    )
    return fn.concat(head.cast("binary"), _bytes("|"), _checksum(head, key, payload).cast("binary"), _bytes("|"), payload.cast("binary"))


def parsed(key: Column, value: Column) -> dict[str, Column]:
    """Fields of a value: `run`, `stream`, `sequence`, `event_ms` (null if unreadable), and `intact`, whether the checksum fits."""

    def text(first: int, length: int) -> Column:
        return fn.substring(value, first, length).cast("string")

    head, payload = fn.substring(value, 1, 42), fn.substring(value, HEADER_BYTES + 1, 1 << 30)
    return {
        "run": text(1, 8),
        "stream": text(10, _STREAM_DIGITS).cast("int"),
        "sequence": text(17, _SEQUENCE_DIGITS).cast("bigint"),
        "event_ms": text(30, 13).cast("bigint"),
        "intact": fn.coalesce(text(44, 8) == _checksum(head, key, payload), fn.lit(False)),
    }


def _checksum(head: Column, key: Column, payload: Column) -> Column:
    covered = fn.concat(head.cast("binary"), fn.coalesce(key.cast("binary"), _bytes("")), _bytes("|"), payload.cast("binary"))
    return fn.lpad(fn.lower(fn.hex(fn.crc32(covered))), 8, "0")


def _bytes(text: str) -> Column:
    return fn.lit(text.encode())
