"""Counts the cost of the conversion of a message set: Apache Kafka's RecordValidationStats."""

from typing import NamedTuple


class Conversion(NamedTuple):
    """The cost of converting records between message formats."""

    records: int
    nanoseconds: int
    temporary_bytes: int
    """Bytes of the records before and after, both decompressed."""
