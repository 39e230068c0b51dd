"""The clock of a running broker."""

import time


class SystemClock:
    """The machine's clocks. Bound as attributes, so that a call costs no more than the builtin's."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since an arbitrary point."""
        return time.monotonic()
