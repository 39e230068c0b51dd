"""Reads and writes primitive values on the wire, and declares the errors of malformed ones.

The generated codecs read and write fixed-size values with `struct` themselves. This module has the rest: varints of more than one byte,
unknown tagged fields, and the errors. Lengths and counts are compared with the remaining bytes before memory is allocated for them.
`ottla.protocol.records.reader` and `ottla.protocol.records.builder` have the zigzag varints inside records.
"""

from __future__ import annotations

from typing import Final

MAX_STRING_BYTES: Final = 0x7FFF
MAX_REPLACED_BYTES: Final = MAX_STRING_BYTES // 3
"""Longest string that has at most MAX_STRING_BYTES even if U+FFFD, which takes three bytes, replaces each of its bytes."""
MAX_ELEMENTS: Final = 500_000
"""Most elements that all arrays of a client's request may have together, and tagged fields; a cluster of 200,000 partitions needs fewer.

An element of one byte on the wire may cost a hundred bytes and some microseconds here, so 100 MiB of them would exhaust the memory.
"""
ANY_ELEMENTS: Final = 0x7FFFFFFF
"""Most elements of a request of a broker, which may describe all partitions of a cluster and all their replicas."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of one field of a client's request, records apart. A copy of as many takes 8 ms, in which no other client is served."""

MAX_HEADER_TAGS: Final = 1_000
"""Most tagged fields of a header, half a millisecond; none is defined so far, and a header is not read in steps."""

_UINT32_MAX: Final = 0xFFFFFFFF


class ProtocolError(Exception):
    """The bytes are not a message, or the message cannot be encoded."""


class Truncated(ProtocolError):
    """The bytes end before the message does."""


class InvalidLength(ProtocolError):
    """A length or count is negative, or larger than the remaining bytes, or a field is longer than MAX_BYTES."""


class TooManyElements(ProtocolError):
    """A request has more elements and tagged fields than MAX_ELEMENTS, or than its reader allows, or a header more than MAX_HEADER_TAGS."""


class InvalidVarint(ProtocolError):
    """A varint does not end within its five bytes."""


class UnexpectedNull(ProtocolError):
    """A value is null although this version does not allow null."""


class InvalidTaggedField(ProtocolError):
    """The length of a tagged field differs from its size field."""


class UnsupportedVersion(ProtocolError):
    """The message has no such version."""


class UnsupportedField(ProtocolError):
    """A field is set that this version cannot carry, and that must not be dropped silently."""


class InvalidValue(ProtocolError):
    """A value does not fit the type of its field. The caller is at fault, not a peer."""


Buffer = bytes | bytearray | memoryview


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes and 32 bits, and the position after it."""
    value = shift = 0
    while True:
        if pos >= len(buf):
            raise Truncated("the bytes end inside a varint")
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Bits that do not fit are dropped, as Java's int shift does.
            return value & _UINT32_MAX, pos
        shift += 7
        if shift > 28:
            raise InvalidVarint("a varint is longer than five bytes")


def uvarint(value: int) -> bytes:
    """An unsigned varint; may have more than 32 bits."""
    if value < 0x80:
        return value.to_bytes(1, "big")  # a negative value raises OverflowError here
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string_length(value: int) -> bytes:
    """A compact string's length plus one."""
    if value > MAX_STRING_BYTES + 1:
        raise InvalidValue(f"a string of {value - 1} bytes; strings have at most {MAX_STRING_BYTES}")
    return uvarint(value)


def read_compact_length(buf: Buffer, pos: int) -> tuple[int, int]:
    """The length or count of a compact array, bytes or records, plus one."""
    value, pos = read_uvarint(buf, pos)
    if value > 0x80000000:
        raise InvalidLength(f"a compact length of {value - 1}")
    return value, pos


def read_compact_string_length(buf: Buffer, pos: int) -> tuple[int, int]:
    """The length of a compact string, plus one."""
    value, pos = read_uvarint(buf, pos)
    if value > MAX_STRING_BYTES + 1:
        raise InvalidLength(f"a string of {value - 1} bytes; strings have at most {MAX_STRING_BYTES}")
    return value, pos


def check_replaced(what: str, text: str) -> None:
    """Check a text of a request or a record, in which U+FFFD has replaced each byte that is not UTF-8.

    Raises InvalidLength for a text that no answer could repeat: names are stored, and would be in answers to other clients.
    """
    size = len(text.encode())
    if size > MAX_STRING_BYTES:
        raise InvalidLength(f"{what} has {size} bytes as UTF-8; strings have at most {MAX_STRING_BYTES}")


def read_unknown_tagged_field(buf: Buffer, pos: int, size: int) -> bytes:
    """The bytes of a tagged field that the message does not declare."""
    if size > len(buf) - pos:
        raise InvalidLength(f"a tagged field of {size} bytes where {len(buf) - pos} are left")
    if size > MAX_BYTES:
        raise too_long("a tagged field", size)
    return bytes(buf[pos : pos + size])


def skip_tagged_fields(buf: Buffer, pos: int) -> int:
    """The position after the tagged fields of a header, whose contents are ignored. Raises ProtocolError."""
    count, pos = read_uvarint(buf, pos)
    if count > MAX_HEADER_TAGS:
        raise TooManyElements(f"a header with {count} tagged fields; at most {MAX_HEADER_TAGS} are read")
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > len(buf):
            raise InvalidLength(f"a tagged field of {size} bytes where {len(buf) - pos + size} are left")
    return pos


def tagged_fields(known: list[tuple[int, bytes]], unknown: dict[int, bytes] | None) -> bytes:
    """The section of tagged fields: their number, then each with its tag and size, in the order of the tags."""
    section = sorted([*known, *unknown.items()]) if unknown else known
    out = [uvarint(len(section))]
    for tag, value in section:
        out += (uvarint(tag), uvarint(len(value)), value)
    return b"".join(out)


def too_many(what: str) -> ProtocolError:
    """The error for the array, or the tagged fields, with which a client's request exceeds MAX_ELEMENTS."""
    return TooManyElements(f"with {what} the request has more than {MAX_ELEMENTS} elements")


def too_long(what: str, length: int) -> ProtocolError:
    """The error for a field of more than MAX_BYTES."""
    return InvalidLength(f"{what} has {length} bytes; at most {MAX_BYTES} are read")


def bad_length(what: str, length: int, left: int) -> ProtocolError:
    """The error for an impossible length or count."""
    if length == -1:
        return UnexpectedNull(f"{what} is null, which this version does not allow")
    return InvalidLength(f"{what} has length {length} where {left} bytes are left")
