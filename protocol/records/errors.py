"""What can be wrong with record batches and their compressed bodies.

Raised by `protocol.records.batch`, `protocol.records.reader`, `protocol.records.builder` and `protocol.records.compression`; they are
facts about bytes. What a *broker* answers to a client that sends such bytes is decided by `storage.validation.batch`.
"""


class RecordFormatError(Exception):
    """Bytes that are not what the record format says. The base of everything in this module."""


class CorruptRecord(RecordFormatError):
    """The framing or the header of a batch cannot be right: sizes, magic, checksum."""


class InvalidMagic(CorruptRecord):
    """The magic byte is none that ever existed."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"Invalid magic found in record: {magic}")
        self.magic = magic


class LegacyMessageFormat(RecordFormatError):
    """A message set of magic 0 or 1, which is neither read nor written here."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"Message format v{magic} is not supported: only record batches (magic 2) are")
        self.magic = magic


class InvalidRecord(RecordFormatError):
    """The records inside a batch do not follow the record format or contradict the header of the batch."""


class UnknownCompressionCodec(RecordFormatError):
    """The codec bits of the attributes (or a codec name) stand for no known codec."""

    def __init__(self, codec: int | str) -> None:
        super().__init__(f"Unknown compression codec: {codec}")
        self.codec = codec


class CorruptCompressedData(RecordFormatError):
    """The codec cannot make sense of the compressed bytes."""

    def __init__(self, codec: str, reason: str) -> None:
        super().__init__(f"Failed to decompress {codec} record stream: {reason}")
        self.codec = codec
        self.reason = reason


class DecompressionTooLarge(RecordFormatError):
    """The decompressed bytes would be more than the caller allowed; nothing beyond that limit was produced."""

    def __init__(self, codec: str, max_bytes: int) -> None:
        super().__init__(f"{codec} record stream expands to more than the allowed {max_bytes} bytes")
        self.codec = codec
        self.max_bytes = max_bytes
