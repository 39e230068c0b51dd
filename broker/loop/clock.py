"""Reads the clocks of a running broker."""

import time


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(time.time() * 1000)  # called for every Produce; nanoseconds are too large for fast division

    monotonic = staticmethod(time.monotonic)  # without a call of Python: each heartbeat reads it
    """Seconds since an arbitrary point."""
