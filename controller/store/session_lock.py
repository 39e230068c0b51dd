"""How the processes of one host see whether a session's owner lives: a locked file with a heartbeat in it, one per session.

The kernel drops the lock the moment the owner dies, however it dies, so that a killed broker is noticed at the next look. A process
that lives but hangs is noticed by its heartbeat, a number in the file that stops growing. Nothing here depends on wall clocks or on the
database being written: a heartbeat costs one write to the page cache. Used by `embedded_worker`.
"""

import fcntl
import os
from contextlib import suppress


class OwnSessionLock:
    """The lock of a session of this process."""

    def __init__(self, path: str) -> None:
        """Make the file and lock it. It stays locked until `release` or the end of the process."""
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._beats = 0
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.beat()

    def beat(self) -> None:
        """Show that the process is not hanging."""
        self._beats += 1
        os.pwrite(self._descriptor, self._beats.to_bytes(8, "big"), 0)

    def release(self) -> None:
        """Give the lock up and remove the file. One that the disk does not let go is nobody's: whoever looks at it finds it unlocked."""
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)


class ObservedSession:
    """The session of another process, or of another store of this one, as seen from here."""

    def __init__(self, path: str, timeout_ms: int, now: float) -> None:
        """`now` is monotonic seconds. A file that is not there belongs to a session that ended."""
        self._path = path
        self._timeout = timeout_ms / 1000
        self._seen = b""
        self._seen_at = now
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self._descriptor = -1

    def is_dead(self, now: float) -> bool:
        """Whether the owner is gone or has been silent for longer than its session timeout."""
        if self._descriptor < 0:
            return True
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            beat = os.pread(self._descriptor, 8, 0)
            if beat != self._seen:
                self._seen, self._seen_at = beat, now
            return now - self._seen_at > self._timeout
        return True

    def excuse(self, now: float) -> None:
        """Begin to count its silence anew, because the observer itself was not running."""
        self._seen_at = now

    def forget(self, *, remove: bool) -> None:
        """Stop observing; `remove` the file when the session has been ended on its owner's behalf."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if remove:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
