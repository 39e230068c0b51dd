"""Detects whether the owner of a session lives: one locked file with a heartbeat for each session of a host.

The kernel releases the lock when the owner dies, for whatever reason, so the next check detects a killed broker. A process that hangs is
detected by its heartbeat, a number in the file that stops growing. Detection does not depend on wall clocks or on a writable database: a
heartbeat costs one write to the page cache. Used by `embedded_worker`.
"""

import fcntl
import os
from contextlib import suppress

from ottla.storage.disk.filesystem import FILE_MODE


class OwnSessionLock:
    """The lock of a session of this process."""

    def __init__(self, path: str) -> None:
        """Create the file and lock it. It stays locked until `release` or the end of the process. Raises OSError."""
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self._beats = 0
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.beat()
        except OSError:
            self.release()
            raise

    def beat(self) -> None:
        """Advance the heartbeat."""
        self._beats += 1
        os.pwrite(self._descriptor, self._beats.to_bytes(8, "big"), 0)

    def release(self) -> None:
        """Release the lock and remove the file. A file that cannot be removed does no harm: other processes find it
        unlocked."""
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)


class ObservedSession:
    """The session of another process, or of another store of this process."""

    def __init__(self, path: str, timeout_ms: int, now: float) -> None:
        """`now` is monotonic seconds. A missing file means that the session ended."""
        self._path = path
        self._timeout = timeout_ms / 1000
        self._seen = b""
        self._seen_at = now
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self._descriptor = -1

    def is_dead(self, now: float) -> bool:
        """Whether the owner has ended, or sent no heartbeat for longer than its session timeout."""
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
        """Restart the heartbeat timeout, because the observer itself was not running."""
        self._seen_at = now

    def forget(self, *, remove: bool) -> None:
        """Stop observing; `remove` the file if this process ended the session."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if remove:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
