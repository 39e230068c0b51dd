"""The port through which time enters the floors below `broker`: a virtual clock stands in for it in simulation."""

from typing import Protocol


class Clock(Protocol):
    """Time as the broker sees it."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch; may jump."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""
