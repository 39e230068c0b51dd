"""Reads `share.auto.offset.reset` of a group: where its share partitions begin (KIP-932). Kafka's ShareGroupAutoOffsetResetStrategy."""

from __future__ import annotations

import re
from typing import Final

from ottla.config.errors import ConfigValueError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration:"

_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?", re.IGNORECASE)
_MS_OF: Final = (86_400_000, 3_600_000, 60_000, 1_000)


def duration_ms(text: str) -> int:
    """The milliseconds of an ISO 8601 duration like P3DT20H30M. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is no duration")
    *whole, fraction = found.groups()
    total = sum(int(number) * ms for number, ms in zip(whole, _MS_OF, strict=True) if number)
    return total + (int(fraction.ljust(3, "0")[:3]) if fraction else 0)


def check_offset_reset(name: str, value: str) -> None:
    """Raises ConfigValueError for a value that is neither `earliest`, nor `latest`, nor `by_duration:` and a duration."""
    try:
        is_valid = value in (EARLIEST, LATEST) or (value.startswith(BY_DURATION) and duration_ms(value.removeprefix(BY_DURATION)) >= 0)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigValueError(
            name,
            value,
            f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or of the format "
            "'by_duration:<PnDTnHnMn.nS>'.",
        )
