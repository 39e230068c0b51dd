"""Parses points in time and durations from the command line. The current time is an argument."""

import re
from datetime import UTC, datetime

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SPAN_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_ISO_SPAN = re.compile(r"(-?)P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_SECONDS_DIGITS = 10
_MOST_DIGITS = 18
"""Of milliseconds that fit the timestamp of a record."""
_LONGEST_SPAN = 100
"""Characters of a duration."""


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of `now`, `-1h30m`, milliseconds, seconds (ten digits), or an ISO 8601 date with or
    without time.

    A time without a zone is UTC, as in Apache Kafka's tools. A time before 1970 is 0, since brokers look up none. Raises ValueError.
    """
    if text == "now":
        return now_ms
    if text.startswith("-"):
        return max(now_ms - parse_span(text[1:]), 0)
    if text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text) * 1000 if len(text) == _SECONDS_DIGITS else int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a point in time; write 2024-05-01T12:00:00, milliseconds since 1970, or -1h for an hour ago"
        ) from None
    return max(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000), 0)


def parse_span(text: str) -> int:
    """Milliseconds of `1d12h`, `30s`, or ISO 8601 as `P1DT12H`. Raises ValueError."""
    if len(text) > _LONGEST_SPAN:  # whose numbers may be infinite
        raise ValueError(f"{text[:_LONGEST_SPAN]}... is not a duration; write 1d12h, 30s or P1DT12H")
    iso = _ISO_SPAN.fullmatch(text)
    if iso and any(iso.groups()[1:]):
        sign, weeks, days, hours, minutes, seconds = iso.groups()
        total = (
            int(weeks or 0) * _SPAN_MS["w"]
            + int(days or 0) * _SPAN_MS["d"]
            + int(hours or 0) * _SPAN_MS["h"]
            + int(minutes or 0) * _SPAN_MS["m"]
            + round(float(seconds or 0) * 1000)
        )
        return -total if sign else total
    if not re.fullmatch(rf"(?:{_SPAN.pattern})+", text):
        raise ValueError(f"{text!r} is not a duration; write 1d12h, 30s or P1DT12H")
    return round(sum(float(amount) * _SPAN_MS[unit] for amount, unit in _SPAN.findall(text)))
