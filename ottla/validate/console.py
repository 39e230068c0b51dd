"""Shows the progress of a run: one line that is redrawn on a terminal, otherwise a line every few seconds."""

import os
import time

_REDRAW_S = 0.2
_REPEAT_S = 5.0


class Console:
    """Writes to descriptors, since standard output and error are Spark's during a run."""

    def __init__(self, out: int, err: int) -> None:
        self._out = out
        self._descriptor = err
        self._draws = os.isatty(err)
        self._drawn_at = time.monotonic()
        self._open_line = False

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(("\r\x1b[K" if self._open_line else "") + text + "\n")
        self._open_line = False

    def result(self, text: str) -> None:
        """Write a result to standard output."""
        if self._open_line:
            self.say("")
        os.write(self._out, (text + "\n").encode(errors="replace"))

    def progress(self, text: str) -> None:
        """Show the progress; not every call writes."""
        now = time.monotonic()
        if now - self._drawn_at < (_REDRAW_S if self._draws else _REPEAT_S):
            return
        self._drawn_at = now
        self._write(f"\r\x1b[K{text}" if self._draws else text + "\n")
        self._open_line = self._draws

    def _write(self, text: str) -> None:
        os.write(self._descriptor, text.encode(errors="replace"))
