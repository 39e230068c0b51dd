"""Declares the port for time in the floors below `broker`; a simulation replaces it by a virtual clock."""

from typing import Protocol


class Clock(Protocol):
    """The broker's source of time."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch; may jump."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""


NEVER_MS = -(2**62)
"""Earlier than any result of `elapsed_ms`; 0 is not, because the machine may have been started a moment ago."""


def elapsed_ms(clock: Clock) -> int:
    """Milliseconds since an arbitrary point, never decreasing: for durations that are not stored in files."""
    return int(clock.monotonic() * 1000)
