"""Formats records by format strings like kcat's -f: `%t [%p] at offset %o: key %k: %s\\n`.

    %s value   %S its length      %k key   %K its length   %R length of the value as four bytes, big-endian
    %t topic   %p partition       %o offset                %T timestamp in milliseconds   %h headers as a=1,b=2
    %% %       \\n \\r \\t \\\\ \\xHH \\0

Lengths of null are -1. A format is parsed once; a record is formatted by joining the results of its parts.
"""

from collections.abc import Callable

from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition

Formatter = Callable[[TopicPartition, Record], bytes]
_Part = Callable[[TopicPartition, Record], bytes]

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def parse_format(text: str, *, null: bytes = b"", shown: Callable[[bytes], bytes] | None = None) -> Formatter:
    """The formatter of a format. Raises ValueError.

    `null` is the output for null keys and values. `shown` changes what comes from a record, not the text of the format.
    """
    parts: list[bytes | _Part] = []
    tokens = _tokens(null)
    if shown is not None:
        tokens = {name: _shown(part, shown) for name, part in tokens.items()}
    at = 0
    while at < len(text):
        char = text[at]
        if char == "%":
            token = text[at + 1 : at + 2]
            if token == "%":
                parts.append(b"%")
            elif token in tokens and token:
                parts.append(tokens[token])
            else:
                raise ValueError(f"%{token} in the format is unknown; there are %% %{' %'.join(tokens)}")
            at += 2
        elif char == "\\":
            data, at = unescape_at(text, at)
            parts.append(data)
        else:
            end = min((found for found in (text.find("%", at), text.find("\\", at)) if found >= 0), default=len(text))
            parts.append(encoded(text[at:end]))
            at = end

    def formatted(partition: TopicPartition, record: Record) -> bytes:
        return b"".join([part if isinstance(part, bytes) else part(partition, record) for part in parts])

    return formatted


def encoded(argument: str) -> bytes:
    """The bytes of an argument as they were typed, also those that are not UTF-8."""
    return argument.encode(errors="surrogateescape")


def unescape(text: str) -> bytes:
    """A delimiter as written on a command line: `\\t`, `\\x1e`, or itself. Raises ValueError."""
    found = bytearray()
    at = 0
    while at < len(text):
        if text[at] == "\\":
            data, at = unescape_at(text, at)
            found += data
        else:
            found += encoded(text[at])
            at += 1
    return bytes(found)


def unescape_at(text: str, at: int) -> tuple[bytes, int]:
    """The byte of the escape at `at`, and the position after it. Raises ValueError."""
    char = text[at + 1 : at + 2]
    if char == "x":
        digits = text[at + 2 : at + 4]
        try:
            return bytes.fromhex(digits), at + 2 + len(digits)
        except ValueError:
            raise ValueError(f"\\x{digits} is not a byte; write two hexadecimal digits") from None
    if char not in _ESCAPES:
        known = " ".join(f"\\{name}" for name in _ESCAPES)
        raise ValueError(f"\\{char} is unknown; there are {known} \\xHH")
    return _ESCAPES[char], at + 2


def headers_text(record: Record, null: bytes = b"NULL") -> bytes:
    """`a=1,b=2`."""
    return b",".join([key + b"=" + (null if value is None else value) for key, value in record.headers])


def _shown(part: _Part, shown: Callable[[bytes], bytes]) -> _Part:
    return lambda partition, record: shown(part(partition, record))


def _tokens(null: bytes) -> dict[str, _Part]:
    return {
        "s": lambda partition, record: null if record.value is None else record.value,
        "S": lambda partition, record: b"%d" % (-1 if record.value is None else len(record.value)),
        "R": lambda partition, record: (-1 if record.value is None else len(record.value)).to_bytes(4, "big", signed=True),
        "k": lambda partition, record: null if record.key is None else record.key,
        "K": lambda partition, record: b"%d" % (-1 if record.key is None else len(record.key)),
        "t": lambda partition, record: partition.topic.encode(),
        "p": lambda partition, record: b"%d" % partition.partition,
        "o": lambda partition, record: b"%d" % record.offset,
        "T": lambda partition, record: b"%d" % record.timestamp,
        "h": lambda partition, record: headers_text(record),
    }
