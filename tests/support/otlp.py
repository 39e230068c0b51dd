"""Builds metrics in OTLP, as clients push them: a protobuf writer for the few messages that tests need."""

from __future__ import annotations

import struct
from collections.abc import Mapping

VARINT, FIXED64, BYTES = 0, 1, 2
DELTA, CUMULATIVE = 1, 2
GAUGE, SUM, HISTOGRAM = 5, 7, 9


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def number(field: int, value: int) -> bytes:
    return varint(field << 3 | VARINT) + varint(value)


def fixed(field: int, value: float) -> bytes:
    return varint(field << 3 | FIXED64) + (struct.pack("<q", value) if isinstance(value, int) else struct.pack("<d", value))


def message(field: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(field << 3 | BYTES) + varint(len(body)) + body


def attributes(field: int, labels: Mapping[str, str]) -> bytes:
    return b"".join(message(field, message(1, name.encode()), message(2, message(1, value.encode()))) for name, value in labels.items())


def point(value: float, **labels: str) -> bytes:
    """A NumberDataPoint: an integer or a double."""
    return message(1, fixed(3, 1), fixed(6 if isinstance(value, int) else 4, value), attributes(7, labels))


def gauge(name: str, *points: bytes) -> bytes:
    return message(2, message(1, name.encode()), message(GAUGE, *points))


def total(name: str, *points: bytes, temporality: int = DELTA, is_monotonic: bool = True) -> bytes:
    return message(2, message(1, name.encode()), message(SUM, *points, number(2, temporality), number(3, is_monotonic)))


def histogram(name: str, count: int, of_all: float, temporality: int = DELTA, **labels: str) -> bytes:
    measured = message(1, fixed(4, count), fixed(5, of_all), message(6, struct.pack("<2q", 1, 2)), attributes(9, labels))
    return message(2, message(1, name.encode()), message(HISTOGRAM, measured, number(2, temporality)))


def metrics(*each: bytes, **resource: str) -> bytes:
    """A MetricsData of one resource and one scope."""
    return message(1, message(2, message(1, message(1, b"scope")), *each), message(1, attributes(1, resource)))
