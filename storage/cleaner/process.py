"""Controls a cleaner process: starts it, sends jobs, receives results, ends it.

`LogCleaner` owns one for each of `log.cleaner.threads`. `start` and `close` block and run in threads; the other methods
are called on the event loop and do not wait.
"""

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import NamedTuple, Protocol

from ottla.storage.cleaner.frames import take_frame, write_frame
from ottla.storage.cleaner.job import CleanedGroup, CleaningJob, CleaningStats, decode_stats, encode_job

_READ_BYTES = 64 * 1024
_PATIENCE_SECONDS = 1.0


class CleaningEnded(NamedTuple):
    """A job ended before it was done."""

    reason: str
    disk_failure_path: str | None = None
    """Path of the file that the disk refused; None for other reasons."""
    is_log_at_fault: bool = False
    """Whether another cleaning of the log would fail, too."""


CleanerMessage = CleanedGroup | CleaningStats | CleaningEnded


class CleanerWorker(Protocol):
    """Cleans one log at a time, outside of the broker's process."""

    def start(self, job: CleaningJob) -> None:
        """Begins the job. Blocks for some milliseconds; may raise OSError."""

    def poll(self) -> CleanerMessage | None:
        """The next message: a group, after which the worker waits for `proceed`; or the end of the job. None if there is
        none."""

    def proceed(self) -> None:
        """Continues after the segments of a group were replaced."""

    def kill(self) -> None:
        """Aborts the job; `poll` reports when it has ended."""

    def close(self) -> None:
        """Ends the worker and frees its resources. Blocks. It may be started again."""


class CleanerProcess:
    """A `CleanerWorker` in a child process. An idle one takes some 30 MB, which `close` frees."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._received = bytearray()
        self._is_killed = False
        self._starting = threading.Lock()
        """Held by `start`, so that a concurrent `close` also ends a process that is just being created."""

    def start(self, job: CleaningJob) -> None:
        with self._starting:
            self._start(job)

    def _start(self, job: CleaningJob) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            self._end()
            # The hashes of keys must be unpredictable.
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ottla.storage.cleaner.worker", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            assert process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)
            self._process = process
        self._received.clear()
        assert process.stdin is not None
        data = encode_job(job)
        with suppress(BrokenPipeError):  # it died, which poll reports
            write_frame(process.stdin, data)
        if self._is_killed:
            process.kill()

    def poll(self) -> CleanerMessage | None:
        process = self._process
        if process is None or process.stdout is None:
            return CleaningEnded("the cleaner process is gone")
        is_open = True
        with suppress(BlockingIOError):
            data = os.read(process.stdout.fileno(), _READ_BYTES)
            self._received += data
            is_open = bool(data)
        frame = take_frame(self._received)
        if frame is not None:
            return _decode(frame)
        return None if is_open else CleaningEnded("the cleaner process died")

    def proceed(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                write_frame(self._process.stdin, b"")

    def kill(self) -> None:
        self._is_killed = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        with self._starting:
            self._end()
            self._is_killed = False

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _decode(frame: bytes) -> CleanerMessage:
    message = json.loads(frame)
    if "group" in message:
        base_offset, sources = message["group"]
        return CleanedGroup(base_offset, tuple(sources))
    if "done" in message:
        return decode_stats(message["done"])
    if "disk_failure" in message:
        path, reason = message["disk_failure"]
        return CleaningEnded(reason, disk_failure_path=path)
    if "failed" in message:
        return CleaningEnded(message["failed"], is_log_at_fault=True)
    return CleaningEnded(message["aborted"])
