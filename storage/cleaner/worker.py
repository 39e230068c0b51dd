"""Runs cleanings in a process of its own, so that they do not block the event loop: `python -m ottla.storage.cleaner.worker PARENT`.

`process` starts it when there is a log to clean, and ends it after some idle time. Jobs arrive on standard input,
groups and results leave on standard output (`frames`). After each group it waits for a message to continue. It ends
with its input or its parent, and is killed to abort a cleaning: it changes no file that the log needs. PARENT is the process id of its
broker. A broker that was killed may be back soon, with a worker of its own, so one without its broker touches no file any more.

It has a lower priority than the broker (`nice`), because a longer compaction does no harm.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import IO

from ottla.protocol.records.errors import RecordFormatError
from ottla.storage.cleaner.frames import read_frame, write_frame
from ottla.storage.cleaner.job import CleaningAborted, decode_job, encode_stats
from ottla.storage.cleaner.run import CleanerPorts, clean
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.errors import StorageError

_NICE = 5
_SHORTEST_SLEEP_SECONDS = 0.02


class Throttle:
    """Limits the rate of reads and writes."""

    def __init__(self, bytes_per_second: float, monotonic: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._due = monotonic()

    def __call__(self, length: int) -> None:
        """`length` bytes were read or written; sleeps when that was too fast."""
        now = self._monotonic()
        self._due = max(self._due, now) + length / self._bytes_per_second
        ahead = self._due - now
        if ahead > _SHORTEST_SLEEP_SECONDS:
            self._sleep(ahead)


def serve(requests: IO[bytes], answers: IO[bytes], parent: int) -> None:
    """Runs jobs until the input ends."""

    def check() -> None:
        if os.getppid() != parent:
            raise SystemExit

    def tell(**message: object) -> None:
        write_frame(answers, json.dumps(message).encode())

    filesystem = RealFileSystem()
    while (frame := read_frame(requests)) is not None:
        check()  # a broker that was killed has left the job in the pipe
        job = decode_job(frame)
        throttle = Throttle(job.max_bytes_per_second, time.monotonic, time.sleep)
        run = clean(job, CleanerPorts(filesystem, time.monotonic, check, throttle))
        try:
            while True:
                try:
                    group = next(run)
                except StopIteration as end:
                    tell(done=encode_stats(end.value))
                    break
                tell(group=group)
                if read_frame(requests) is None:
                    return
        except CleaningAborted as reason:
            tell(aborted=str(reason))
        except OSError as error:
            tell(disk_failure=[str(error.filename or job.directory), error.strerror or str(error)])
        except (RecordFormatError, StorageError, ValueError, MemoryError) as error:
            tell(failed=f"{type(error).__name__}: {error}")
        finally:
            run.close()


def main() -> None:
    """Serves on standard input and output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which ends this process
    os.nice(_NICE)
    parent = int(sys.argv[1])
    try:
        with contextlib.suppress(BrokenPipeError):
            serve(sys.stdin.buffer, sys.stdout.buffer, parent)
    except Exception:
        if os.getppid() == parent:
            raise
        # Else the files that it read are those of another broker by now, which may change them.
    finally:
        # Otherwise unsent output to a broker that is gone would be flushed again at exit, with an error in the shared
        # log.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
