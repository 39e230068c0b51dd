"""Finds the offset where a share partition without a stored start begins, by the group's `share.auto.offset.reset`."""

from __future__ import annotations

import re
from typing import Final

from ottla.storage.log.lookups import offset_for_timestamp
from ottla.storage.log.partition_log import PartitionLog

EARLIEST: Final = "earliest"
BY_DURATION: Final = "by_duration:"

_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?", re.IGNORECASE)
_MS_OF: Final = (86_400_000, 3_600_000, 60_000, 1_000)


def initial_offset(log: PartitionLog, reset: str, now_ms: int) -> int:
    """The start of a new share partition: `latest` begins at the high watermark. Raises StorageError."""
    if reset == EARLIEST:
        return log.log_start_offset
    if reset.startswith(BY_DURATION):
        found = offset_for_timestamp(log, max(0, now_ms - duration_ms(reset.removeprefix(BY_DURATION))))
        if found is not None and found.offset < log.high_watermark:
            return found.offset
    return log.high_watermark


def duration_ms(text: str) -> int:
    """The milliseconds of an ISO 8601 duration like P3DT20H30M. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is no duration")
    *whole, fraction = found.groups()
    total = sum(int(number) * ms for number, ms in zip(whole, _MS_OF, strict=True) if number)
    return total + (int(fraction.ljust(3, "0")[:3]) if fraction else 0)
