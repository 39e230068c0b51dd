"""Measures reads at the tail beside a consumer of old data: `python -m benchmarks.stalls.cold_reads [--kinds ottla apache]`.

A topic of many segments is filled and repeatedly dropped from the page cache. Meanwhile one client writes a batch to another topic every
few milliseconds and reads it at once. The time of that read is measured: alone, beside a reader of random offsets in the old topic while
that is cached, and beside the same reader while the topic is not cached.
"""

import argparse
import glob
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.brokers.kinds import COMMON_CONFIG, COMPARED, KINDS, Broker
from benchmarks.loads.admin import Admin, BrokerRefusedError, Topic
from benchmarks.loads.batches import batch_of_size
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

MIB = 1 << 20
SEGMENT_BYTES = 16 * MIB
BATCH_RECORDS = 100
FETCH_BYTES = 256 * 1024
PAUSE_S = 0.002
CONFIG = {**COMMON_CONFIG, "log.segment.bytes": str(SEGMENT_BYTES)}
ALONE = "alone"
TITLES = {ALONE: "nobody besides", "cached": "beside old data from memory", "cold": "beside old data from the disk"}


class Beside(NamedTuple):
    """Times of the reads at the tail, ascending, and the rate at which another client read old data meanwhile."""

    key: str
    taken_ms: list[float]
    old_mb_per_s: float

    @property
    def title(self) -> str:
        return TITLES[self.key]


def produce(admin: Admin, topic: str, batch: bytes) -> int:
    """The offset of the batch."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])
    answer = admin.ask(ApiKey.PRODUCE, ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data]), ProduceResponse)
    partition = answer.responses[0].partition_responses[0]
    if partition.error_code:
        raise BrokerRefusedError(f"Produce to {topic}: error code {partition.error_code}")
    return partition.base_offset


def fetch(admin: Admin, topic: Topic, offset: int, max_bytes: int) -> int:
    """The number of bytes in the answer."""
    asked = FetchTopic(
        topic_id=topic.topic_id, partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)]
    )
    answer = admin.ask(ApiKey.FETCH, FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, topics=[asked]), FetchResponse)
    found = answer.responses[0].partitions[0]
    if found.error_code:
        raise BrokerRefusedError(f"Fetch of {topic.name} at {offset}: error code {found.error_code}")
    return len(found.records or b"")


def read_old_data(
    port: int, topic: Topic, end_offset: int, files: str, is_cold: bool, end: Event, read: "multiprocessing.Queue[int]"
) -> None:
    """A process that fetches from random offsets of the topic until `end`; every time from the disk, if `is_cold`."""
    jumps = random.Random(1)
    count = 0
    descriptors = [os.open(path, os.O_RDONLY) for path in glob.glob(files)]
    with Admin("127.0.0.1", port) as admin:
        while not end.is_set():
            if is_cold:
                for descriptor in descriptors:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            count += fetch(admin, topic, jumps.randrange(end_offset), FETCH_BYTES)
    read.put(count)


@contextmanager
def beside(port: int, topic: Topic, end_offset: int, files: str, *, is_cold: bool) -> Iterator["multiprocessing.Queue[int]"]:
    """A reader of old data; the number of bytes that it read is in the queue afterwards."""
    end = multiprocessing.Event()
    read: multiprocessing.Queue[int] = multiprocessing.Queue()
    reader = multiprocessing.Process(target=read_old_data, args=(port, topic, end_offset, files, is_cold, end, read))
    reader.start()
    try:
        yield read
    finally:
        end.set()
        reader.join()


def tail_latencies(admin: Admin, topic: Topic, seconds: float) -> list[float]:
    """Times of reads of the batch that was just written, ms, ascending."""
    batch = batch_of_size(1000, 10, int(time.time() * 1000))
    taken = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        offset = produce(admin, topic.name, batch)
        began = time.perf_counter()
        fetch(admin, topic, offset, MIB)
        taken.append((time.perf_counter() - began) * 1000)
        time.sleep(PAUSE_S)
    return sorted(taken)


def measure(broker: Broker, directory: Path, megabytes: int, seconds: float) -> Iterator[Beside]:
    """All three measurements, on a running broker whose data is below `directory`."""
    with Admin("127.0.0.1", broker.port) as admin:
        old, tail = admin.create_topic("old", 1), admin.create_topic("tail", 1)
        batch = batch_of_size(16 * 1024, BATCH_RECORDS, int(time.time() * 1000))
        end_offset = 0
        for _ in range(megabytes * MIB // len(batch)):
            end_offset = produce(admin, "old", batch) + BATCH_RECORDS
        pattern = str(directory / "**" / "old-0" / "*")
        (files_of_topic,) = {str(Path(path).parent) for path in glob.glob(pattern, recursive=True)}
        os.sync()
        tail_latencies(admin, tail, seconds)  # warms up
        yield Beside(ALONE, tail_latencies(admin, tail, seconds), 0.0)
        for key in ("cached", "cold"):
            with beside(broker.port, old, end_offset, f"{files_of_topic}/*", is_cold=key == "cold") as read:
                taken = tail_latencies(admin, tail, seconds)
            yield Beside(key, taken, read.get() / MIB / seconds)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=COMPARED[::-1])
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    table = Table(title="reads at the tail, ms", title_justify="left")
    for heading in ("broker", "who reads besides", "MB/s of that", "reads", "p50", "p99", "p99.9", "longest"):
        table.add_column(heading, justify="left" if heading in ("broker", "who reads besides") else "right")
    with tempfile.TemporaryDirectory(prefix="cold-reads-") as scratch:
        for kind in options.kinds:
            directory = Path(scratch) / kind
            broker = KINDS[kind](directory, config=CONFIG)
            broker.start()
            try:
                for found in measure(broker, directory, options.megabytes, options.seconds):
                    taken = found.taken_ms
                    at = [taken[min(int(len(taken) * share), len(taken) - 1)] for share in (0.5, 0.99, 0.999, 1.0)]
                    cells = [found.title, f"{found.old_mb_per_s:.0f}", str(len(taken)), *(f"{value:.2f}" for value in at)]
                    table.add_row(broker.label, *cells)
            finally:
                broker.stop()
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
