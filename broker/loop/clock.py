"""The clock of a running broker."""

import time


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(time.time() * 1000)  # every Produce asks; nanoseconds are too large for the quick kind of division

    def monotonic(self) -> float:
        """Seconds since an arbitrary point."""
        return time.monotonic()
