"""Defines the names of files in a partition's directory, which are Apache Kafka's.

The names of a segment's files have its base offset in 20 digits: `00000000000000000021.log`, `.index`, `.timeindex`,
`.txnindex`. That of a producer snapshot has the offset up to which it is valid: `00000000000000000042.snapshot`.
"""

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"
INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"  # removed from the log; deleted after file.delete.delay.ms, or when the log is opened next
CLEANED_SUFFIX = ".cleaned"  # being written by the cleaner; invalid after a crash
TEMPORARY_SUFFIX = ".tmp"  # being written, to replace the file without the suffix; invalid after a crash
SWAP_SUFFIX = ".swap"  # complete, replacing older segments; finished when the log is opened next

_DIGITS = 20


def file_name(base_offset: int, suffix: str) -> str:
    """`00000000000000000021.log` for 21 and `.log`."""
    return f"{base_offset:0{_DIGITS}d}{suffix}"


def offset_of_file_name(name: str) -> int | None:
    """The offset before the first dot; None unless it has 20 digits, because the file is then not part of the log."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == _DIGITS and digits.isascii() and digits.isdigit() else None
