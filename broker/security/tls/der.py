"""Reads single elements of DER, the encoding of certificates and keys (ITU-T X.690)."""

from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
SET: Final = 0x31
INTEGER: Final = 0x02
MAX_IDENTIFIER_BYTES: Final = 256
"""Longest object identifier, bytes; those in use have up to 20. Python writes no number of thousands of digits, and builds it slowly."""


class MalformedDer(ValueError):
    """Bytes that are no DER."""


class Element(NamedTuple):
    """One element of `data`: its first byte is at `start`, its content from `begin` to `end`."""

    data: bytes
    tag: int
    start: int
    begin: int
    end: int

    @property
    def content(self) -> bytes:
        """The content without tag and length."""
        return self.data[self.begin : self.end]

    @property
    def encoded(self) -> bytes:
        """The whole element."""
        return self.data[self.start : self.end]

    def parts(self) -> list["Element"]:
        """The elements inside a constructed element. Raises MalformedDer."""
        found = []
        position = self.begin
        while position < self.end:
            part = element(self.data, position, self.end)
            found.append(part)
            position = part.end
        return found

    def part(self, index: int) -> "Element":
        """The element at this place inside a constructed element. Raises MalformedDer."""
        try:
            return self.parts()[index]
        except IndexError:
            raise MalformedDer(f"an element has no part {index}") from None


def element(data: bytes, position: int = 0, limit: int | None = None) -> Element:
    """The element at `position`, which must end before `limit`. Raises MalformedDer."""
    end = len(data) if limit is None else limit
    if position + 2 > end:
        raise MalformedDer("the data ends inside an element")
    tag, length = data[position], data[position + 1]
    begin = position + 2
    if tag & 0x1F == 0x1F:
        raise MalformedDer(f"tag {tag:#x} has more than one byte")
    if length & 0x80:
        count = length & 0x7F
        if not 0 < count <= 4 or begin + count > end:
            raise MalformedDer("an element has an impossible length")
        length = int.from_bytes(data[begin : begin + count], "big")
        begin += count
    if begin + length > end:
        raise MalformedDer("an element is longer than the data")
    return Element(data, tag, position, begin, begin + length)


def object_identifier(content: bytes) -> str:
    """The dotted text of an object identifier. Raises MalformedDer."""
    if len(content) > MAX_IDENTIFIER_BYTES:
        raise MalformedDer(f"an object identifier is longer than {MAX_IDENTIFIER_BYTES} bytes")
    numbers = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] & 0x80:
        raise MalformedDer("an object identifier is cut off")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
