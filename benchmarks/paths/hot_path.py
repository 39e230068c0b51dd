"""Measures Produce, Fetch and OffsetCommit from the frame to the answer, without a network: `python -m benchmarks.paths.hot_path`.

A broker in this process; every frame goes through `Dispatcher.handle`. Prints µs of processor time per request, the minimum of several
rounds. Beside it stands a floor from the same rounds: the calls that even a minimal broker in Python would make for the same bytes.
Absolute figures differ between machines and hours, the ratios much less. `--strict` ends with exit code 1 when a ratio exceeds its limit;
limits are about a third above the ratios at the time when they were set.

    produce   the checksum of the batch and os.pwrite of it
    commit    the same for the batch that commits the offsets
    fetch     os.pread of two batch headers, and one Struct.pack for the answer's head
"""

import argparse
import asyncio
import os
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import crc32c
import uvloop

from benchmarks.comparisons.groups import TOPIC as COMMITTED
from benchmarks.comparisons.groups import commit_frame
from benchmarks.loads import frames
from benchmarks.loads.workloads import FETCH, PRODUCE, RECORDS_OF_16_KIB, batch_of_16_kib
from benchmarks.turns.sizes import Pace
from ottla.broker.server import Broker
from ottla.broker.serving.dispatch import Dispatcher
from ottla.config.broker import BrokerConfig
from ottla.controller.admin.topic_admin import NewTopic
from ottla.coordination.internal_topics import GROUP_METADATA_TOPIC
from ottla.pauses import begin_slices
from ottla.protocol.records.batch import ATTRIBUTES_OFFSET
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.pending_topic_id import make_durable
from ottla.storage.segment.file_region import FileRegion
from tests.support.connections import ClientConnection

ROUNDS = 12
REQUESTS = 400  # per round
PARTITIONS = 4
PREFILL_BYTES = 64 << 20
TOPIC = "hot"
COMMITS = ((1, 20.0), (100, 22.0))
"""Offsets in a commit, and the limit of its ratio."""

_PACE = Pace(0, 0, 0, 0, PREFILL_BYTES)
_CONNECTION: Any = ClientConnection()

Work = Callable[[], None]


class Line(NamedTuple):
    """One kind of request: a round of it, a round of its floor, and the limit of their ratio."""

    title: str
    work: Work
    floor: Work
    limit: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paths.hot_path", description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", default="/dev/shm" if Path("/dev/shm").is_dir() else None, help="where the log is; memory by default")
    parser.add_argument("--strict", action="store_true", help="exit code 1 when a ratio is above its limit")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="hot-path-", dir=asked.dir) as scratch:
        results = uvloop.run(measure(Path(scratch)))
    print(f"{'µs per request':<40}{'broker':>9}{'floor':>9}{'ratio':>9}{'limit':>9}")
    for line, cost, floor in results:
        print(f"{line.title:<40}{cost:>9.1f}{floor:>9.1f}{cost / floor:>9.1f}{line.limit:>9.1f}")
    return 1 if asked.strict and any(cost / floor > line.limit for line, cost, floor in results) else 0


async def measure(scratch: Path) -> list[tuple[Line, float, float]]:
    """(line, µs, µs of its floor) of every line."""
    begin_slices(asyncio.get_running_loop(), lambda: 0)  # all rounds are one turn of the event loop: no work may wait for the next
    broker = Broker(BrokerConfig({"log.dirs": str(scratch / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}))
    await broker.start()
    try:
        topics = [NewTopic(TOPIC, PARTITIONS, 1), NewTopic("produced", 1, 1), NewTopic(COMMITTED, COMMITS[-1][0], 1)]
        await broker.services.administration.topic_admin.create_topics([*topics, NewTopic(GROUP_METADATA_TOPIC, 1, 1)])
        await until_coordinating(broker)
        for log in broker.log_manager.all_logs():
            make_durable(log)  # its first Produce would wait for that in a worker
        results = []
        for line in lines(broker, scratch):
            costs, floors = [], []
            for _ in range(ROUNDS):
                costs.append(processor_time(line.work))
                floors.append(processor_time(line.floor))
                await asyncio.sleep(0)
            results.append((line, min(costs), min(floors)))
        return results
    finally:
        await broker.stop()


async def until_coordinating(broker: Broker) -> None:
    groups = broker.services.coordinators.groups.groups
    for _ in range(1000):
        if groups.partitions and not groups.is_loading:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the group coordinator never loaded")


def processor_time(work: Work) -> float:
    """µs of this thread per request of one round."""
    before = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - before) / REQUESTS / 1000


def lines(broker: Broker, scratch: Path) -> list[Line]:
    """All lines; fills the topic that is fetched from."""
    dispatcher = broker.dispatcher
    now_ms = int(time.time() * 1000)
    found = []
    for produce, limit in zip(PRODUCE[:3], (14.0, 2.8, 3.8), strict=True):
        batch = produce.batch(now_ms)
        frame = frames.produce("produced", 0, batch)[4:]
        floor = writing(batch, scratch / "floor")
        found.append(Line(produce.title, producing(dispatcher, frame), floor, limit))
    batch = batch_of_16_kib("none")(now_ms)
    for _ in range(PREFILL_BYTES // PARTITIONS // (16 << 10)):
        for index in range(PARTITIONS):
            dispatcher.handle(memoryview(bytearray(frames.produce(TOPIC, index, batch)[4:])), _CONNECTION)
    topic_id = broker.services.metadata.topic_id(TOPIC)
    topic: Any = SimpleNamespace(name=TOPIC, topic_id=topic_id, partitions=PARTITIONS)
    probe = looking_up(broker.services.data.replica_manager.partitions[TOPIC][0].log.segments.active.path)
    for fetch in FETCH:
        asked = [memoryview(bytearray(each.frame[4:])) for each in fetch.load(topic, _PACE).prepared()]
        found.append(Line(f"{fetch.title}, random offsets", fetching(dispatcher, asked), probe, 13.0))
    step = RECORDS_OF_16_KIB * 4
    ends = PREFILL_BYTES // PARTITIONS // (16 << 10) * RECORDS_OF_16_KIB - step
    asked = [memoryview(bytearray(frames.fetch(topic_id, 0, offset, 64 << 10)[4:])) for offset in range(0, ends, step)]
    found.append(Line("fetch, 64 KiB, in order", fetching(dispatcher, asked), probe, 9.0))
    log = broker.services.data.replica_manager.partitions[GROUP_METADATA_TOPIC][0].log
    for size, limit in COMMITS:
        frame = commit_frame("committing", 0, size)[4:]
        committing(dispatcher, frame)()  # the group comes into being
        batch = last_batch(log)
        title = f"commit, {size} offset{'s' if size > 1 else ''}"
        found.append(Line(title, committing(dispatcher, frame), writing(batch, scratch / "floor"), limit))
    return found


def committing(dispatcher: Dispatcher, frame: bytes) -> Work:
    view = memoryview(bytearray(frame))

    def work() -> None:
        for _ in range(REQUESTS):
            answer = dispatcher.handle(view, _CONNECTION)
        assert isinstance(answer, bytes)

    return work


def last_batch(log: PartitionLog) -> bytes:
    region = log.read(log.log_end_offset - 1, 1 << 20, log.log_end_offset, True, False).region
    assert region is not None
    return region.read()


def producing(dispatcher: Dispatcher, frame: bytes) -> Work:
    view = memoryview(bytearray(frame))

    def work() -> None:
        for _ in range(REQUESTS):
            view[:] = frame  # the broker stamped it
            answer = dispatcher.handle(view, _CONNECTION)
        assert isinstance(answer, bytes)

    return work


def writing(batch: bytes, path: Path) -> Work:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    view = memoryview(bytearray(batch))

    def floor() -> None:
        for position in range(0, REQUESTS * len(batch), len(batch)):
            view[:] = batch
            crc32c.crc32c(view[ATTRIBUTES_OFFSET:])
            os.pwrite(descriptor, view, position)
        os.ftruncate(descriptor, 0)

    return floor


def fetching(dispatcher: Dispatcher, asked: Sequence[memoryview]) -> Work:
    def work() -> None:
        for number in range(REQUESTS):
            answer = dispatcher.handle(asked[number % len(asked)], _CONNECTION)
        assert isinstance(answer, list)
        assert isinstance(answer[1], FileRegion)

    return work


def looking_up(path: str) -> Work:
    descriptor = os.open(path, os.O_RDONLY)
    pack = struct.Struct(">iBihiB16sBihqqqBi").pack

    def floor() -> None:
        for number in range(REQUESTS):
            os.pread(descriptor, 31, number << 14)
            os.pread(descriptor, 31, number << 14)
            pack(1, 0, 0, 0, 0, 2, b"", 2, 0, 0, 1, 1, 0, 0, -1)

    return floor


if __name__ == "__main__":
    sys.exit(main())
