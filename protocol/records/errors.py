"""Declares the errors of malformed record batches and compressed bodies.

Raised by `ottla.protocol.records.batch`, `ottla.protocol.records.reader`, `ottla.protocol.records.builder` and
`ottla.protocol.records.compression`; they are facts about bytes. `ottla.storage.validation.batch` decides how a *broker* answers a client
that sends such bytes.
"""


class RecordFormatError(Exception):
    """The bytes violate the record format. The base of all errors in this module."""


class CorruptRecord(RecordFormatError):
    """The framing or the header of a batch is impossible: sizes, magic, checksum."""


class InvalidMagic(CorruptRecord):
    """The magic byte belongs to no format."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"Invalid magic found in record: {magic}")
        self.magic = magic


class BatchTooSmall(CorruptRecord):
    """A batch of magic 2 has no room for its header."""

    def __init__(self, size: int, header_size: int) -> None:
        super().__init__(f"Record batch is corrupt (the size {size} is smaller than the minimum allowed overhead {header_size})")
        self.size = size


class MalformedMessage(RecordFormatError):
    """The sizes inside a message of magic 0 or 1 contradict its own size, or its timestamp is negative."""


class MessageTooLarge(RecordFormatError):
    """A message of magic 0 or 1 has more bytes than the caller allows."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a message of {size} bytes is too large")
        self.size = size


class InvalidRecord(RecordFormatError):
    """The records inside a batch violate the record format or contradict the header of the batch."""


class OverlongLength(InvalidRecord):
    """The length of a record has more than five bytes."""


class TooManyHeaders(RecordFormatError):
    """A record has more headers than the reader makes."""

    def __init__(self, offset: int, count: int, most: int) -> None:
        super().__init__(f"the record at offset {offset} has {count} headers; at most {most} are read")
        self.offset = offset


class UnknownCompressionCodec(RecordFormatError):
    """The codec bits of the attributes, or a codec name, belong to no known codec."""

    def __init__(self, codec: int | str) -> None:
        super().__init__(f"Unknown compression codec: {codec}")
        self.codec = codec


class CorruptCompressedData(RecordFormatError):
    """The codec cannot decompress the bytes."""

    def __init__(self, codec: str, reason: str) -> None:
        super().__init__(f"Failed to decompress {codec} record stream: {reason}")
        self.codec = codec
        self.reason = reason


class TruncatedCompressedData(CorruptCompressedData):
    """The stream is undamaged up to the end of the bytes, but it is not complete."""

    def __init__(self, codec: str) -> None:
        super().__init__(codec, "the stream ends early")


class DecompressionTooLarge(RecordFormatError):
    """The decompressed bytes would exceed the caller's limit; nothing beyond the limit was produced."""

    def __init__(self, codec: str, max_bytes: int) -> None:
        super().__init__(f"{codec} record stream expands to more than the allowed {max_bytes} bytes")
        self.codec = codec
        self.max_bytes = max_bytes
