"""The names of files and directories in a log directory, Apache Kafka's own. Used by everything in `storage` that touches a path.

A segment's files carry its base offset in 20 digits: `00000000000000000021.log`, `.index`, `.timeindex`, `.txnindex`; a producer
snapshot the offset up to which it holds: `00000000000000000042.snapshot`.
"""

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"
INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"  # out of the log; the file goes after file.delete.delay.ms, or when the log is opened next
CLEANED_SUFFIX = ".cleaned"  # being written by the cleaner; worthless after a crash
TEMPORARY_SUFFIX = ".tmp"  # being written, to replace the file without it; worthless after a crash
SWAP_SUFFIX = ".swap"  # complete, taking the place of older segments; finished when the log is opened next

_DIGITS = 20


def file_name(base_offset: int, suffix: str) -> str:
    """`00000000000000000021.log` for 21 and `.log`."""
    return f"{base_offset:0{_DIGITS}d}{suffix}"


def offset_of_file_name(name: str) -> int | None:
    """The offset before the first dot, None when what stands there is no offset of 20 digits: such a file is no part of the log."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == _DIGITS and digits.isascii() and digits.isdigit() else None
