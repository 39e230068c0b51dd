"""Clocks for tests."""


class ManualClock:
    """Does not advance by itself."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds since an arbitrary point."""
        return self._monotonic

    def set_back(self, milliseconds: int) -> None:
        """The clock on the wall is wrong, or was; no time passes. Negative: it is set forward."""
        self._now_ms -= milliseconds

    def move(self, milliseconds: int) -> None:
        """Let time pass."""
        self._now_ms += milliseconds
        self._monotonic += milliseconds / 1000
