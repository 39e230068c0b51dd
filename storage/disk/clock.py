"""The port through which time enters the floors below `broker`: a virtual clock stands in for it in simulation."""

from typing import Protocol


class Clock(Protocol):
    """Time as the broker sees it."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch; may jump."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""


NEVER_MS = -(2**62)
"""Longer ago than anything by `elapsed_ms`; the machine may have been started a moment ago, so 0 is not."""


def elapsed_ms(clock: Clock) -> int:
    """Milliseconds since an arbitrary point, which never go back: for how long ago something was that no file tells."""
    return int(clock.monotonic() * 1000)
