"""Converts numbers as Java does, where Apache Kafka's throttle times depend on it."""

from __future__ import annotations

from math import floor, isnan
from typing import Final

_LONG_MAX: Final = 2**63 - 1


def java_round(value: float) -> int:
    """Math.round: to the nearest whole number, halves up, and at most Long.MAX_VALUE; 0 for NaN."""
    if isnan(value):
        return 0
    return _LONG_MAX if value >= _LONG_MAX else floor(value + 0.5)


def java_int(value: int) -> int:
    """A long, narrowed to an int: the lower 32 bits, with their sign."""
    return ((value + 2**31) & 0xFFFFFFFF) - 2**31
