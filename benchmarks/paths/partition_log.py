"""Measures the partition log per append and per read: `python -m benchmarks.paths.partition_log`.

Prints CPU µs beside the unavoidable system calls, made in the same run on the same bytes: one pwrite per append, one pread per read. A read
only finds the region; sendfile then moves the bytes. Absolute figures differ between machines; compare within one run.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.log.context import LogContext
from ottla.storage.log.origins import CLIENT
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.recovery import open_log
from ottla.storage.validation.batch import judge
from ottla.storage.validation.run import BatchRun

NOW_MS = 1_700_000_000_000
REPEAT = 5
SHAPES = (("1 record of 100 B", 1, 100, 20_000), ("16 KiB, 150 records", 150, 96, 5_000), ("1 MB, 1000 records", 1000, 1000, 100))
READ_BYTES = (16 * 1024, 64 * 1024, 1024 * 1024)


class _Clock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return time.monotonic()


class _Never:
    def schedule_once(self, name: str, action: Callable[[], None], delay_ms: int) -> None:
        """Nothing is deleted in here."""


def opened(directory: str, name: str) -> PartitionLog:
    context = LogContext(RealFileSystem(), _Clock(), _Never())
    return open_log(context, TopicPartition(name, 0), directory, TopicConfig({}, BrokerConfig({})), is_new=True)


def best(work: Callable[[int], object], count: int) -> float:
    """CPU µs per call of the best of several runs of `count`."""
    times = []
    for _ in range(REPEAT):
        began = time.thread_time()
        work(count)
        times.append(time.thread_time() - began)
    return min(times) / count * 1e6


def append(log: PartitionLog, run: BatchRun, count: int) -> None:
    for _ in range(count):
        log.append(run, 0, NOW_MS, CLIENT)


def bare_pwrite(fd: int, data: memoryview | bytearray, count: int) -> None:
    position = os.fstat(fd).st_size
    for _ in range(count):
        position += os.pwrite(fd, data, position)


def read_tail(log: PartitionLog, run: BatchRun, count: int) -> float:
    """CPU µs of a read by a consumer that has read everything before; the appends between are not counted."""
    offset = log.log_end_offset
    log.update_high_watermark(offset)
    spent = 0.0
    for _ in range(count):
        log.append(run, 0, NOW_MS, CLIENT)
        began = time.perf_counter()
        log.update_high_watermark(log.log_end_offset)
        offset = log.read(offset, 1 << 20, log.high_watermark, True).next_offset
        spent += time.perf_counter() - began
    return spent / count * 1e6


def read_sequentially(log: PartitionLog, max_bytes: int) -> float:
    """CPU µs of a read by a consumer that catches up."""
    offset, count, end = 0, 0, log.log_end_offset
    began = time.thread_time()
    while offset < end:
        offset = log.read(offset, max_bytes, end, True).next_offset
        count += 1
    return (time.thread_time() - began) / count * 1e6


def read_anywhere(log: PartitionLog, max_bytes: int, count: int = 2000) -> float:
    """CPU µs of a read at an offset far from earlier reads."""
    end = log.log_end_offset
    began = time.thread_time()
    for n in range(count):
        log.read(n * 7919 * 131 % end, max_bytes, end, True)
    return (time.thread_time() - began) / count * 1e6


def bare_pread(fd: int, size: int, length: int, count: int) -> None:
    for n in range(count):
        os.pread(fd, length, n * length % max(size - length, 1))


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        print(f"{'append':24}{'bare pwrite':>14}{'log':>10}{'on top':>10}   µs")
        for name, records, value_bytes, count in SHAPES:
            log = opened(directory, f"append-{records}")
            made = [Record(i, NOW_MS + i, b"key", bytes(value_bytes)) for i in range(records)]
            run = BatchRun(memoryview(build_batch(made)))
            run.read(0)
            judge(run, log.rules, NOW_MS, True)
            fd = os.open(f"{directory}/bare-{records}", os.O_RDWR | os.O_CREAT)
            # In turns, so that changes of the machine affect both.
            bare = best(partial(bare_pwrite, fd, run.frame), count)
            ours = best(partial(append, log, run), count)
            bare = min(bare, best(partial(bare_pwrite, fd, run.frame), count))
            print(f"{name:24}{bare:14.2f}{ours:10.2f}{ours - bare:10.2f}")
            os.close(fd)
            if records == 150:
                reader, its_run = log, run
            else:
                log.files.delete()
        print(f"\n{'read, 16 KiB batches':24}{'bare pread':>14}{'tail':>10}{'catch-up':>10}{'anywhere':>10}   µs")
        for length in READ_BYTES:
            segment = reader.segments.active
            bare = best(partial(bare_pread, segment.file.fileno(), segment.size, length), 300)
            tail = read_tail(reader, its_run, 1000)
            print(
                f"{length // 1024:>5} KiB{'':15}{bare:14.2f}{tail:10.2f}"
                f"{read_sequentially(reader, length):10.2f}{read_anywhere(reader, length):10.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
