"""Runs a moderate load for long, and measures the drift of memory and latency while segments roll and retention deletes them."""

import os
import statistics
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import uvloop

from benchmarks.brokers import process
from benchmarks.brokers.kinds import COMMON_CONFIG
from benchmarks.brokers.withheld import Withheld
from benchmarks.comparisons import groups
from benchmarks.loadgen.runner import Interval, Load
from benchmarks.loads import frames, workloads
from benchmarks.loads.admin import Admin, BrokerRefusedError, Topic
from benchmarks.parts.part import BROKER_LABELS, Curve, Part, running
from benchmarks.report.lines import Line, latency_of, number, percent_name
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import FAILURES, Bench, Plan, Turn
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

RATE = 500
_INTERVALS = 60
_PARTITIONS = 8
_CONFIG = {**COMMON_CONFIG, **groups.CONFIG, "log.retention.check.interval.ms": "5000"}
_TOPIC_CONFIG = {"segment.bytes": str(16 << 20), "retention.bytes": str(48 << 20)}
_FETCH_BYTES = 256 * 1024
_READ_EVERY_S = 0.05
_COMMIT_EVERY_S = 1.0
_BATCH_HEAD = struct.Struct(">qi11xi")  # baseOffset, batchLength, lastOffsetDelta


class TailReader:
    """Reads all partitions at their ends and commits its offsets, over a new connection for each commit, on its own thread."""

    def __init__(self, port: int, topic: Topic) -> None:
        self._port = port
        self._topic = topic
        self._next = [0] * topic.partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.read_bytes = 0
        self.failure = ""

    def __enter__(self) -> "TailReader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def records(self) -> int:
        """Records read so far; exact once the reader has ended."""
        return sum(self._next)

    def _run(self) -> None:
        commit_at = 0.0
        try:
            with Admin("127.0.0.1", self._port) as admin:
                while not self._stopping.wait(_READ_EVERY_S):
                    self._read(admin)
                    if time.monotonic() > commit_at:
                        commit_at = time.monotonic() + _COMMIT_EVERY_S
                        with Admin("127.0.0.1", self._port) as other:
                            self._commit(other)
                while self._read(admin):
                    pass
        except FAILURES as failure:
            self.failure = f"the reader at the tail: {failure}"

    def _read(self, admin: Admin) -> int:
        """The number of bytes in the answer."""
        asked = [
            FetchPartition(partition=at, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES) for at, offset in enumerate(self._next)
        ]
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, max_bytes=1 << 30, topics=[FetchTopic(topic_id=self._topic.topic_id, partitions=asked)]
        )
        found = 0
        for topic in admin.ask(ApiKey.FETCH, request, FetchResponse).responses:
            for partition in topic.partitions:
                if partition.error_code:
                    raise BrokerRefusedError(f"Fetch of partition {partition.partition_index}: error code {partition.error_code}")
                records = memoryview(partition.records or b"")
                found += len(records)
                self._next[partition.partition_index] = end_offset(records, self._next[partition.partition_index])
        self.read_bytes += found
        return found

    def _commit(self, admin: Admin) -> None:
        partitions = [
            OffsetCommitRequestPartition(partition_index=at, committed_offset=offset, committed_metadata="")
            for at, offset in enumerate(self._next)
        ]
        topics = [OffsetCommitRequestTopic(name=self._topic.name, partitions=partitions)]
        answer = admin.ask(ApiKey.OFFSET_COMMIT, OffsetCommitRequest(group_id="long-run", topics=topics), OffsetCommitResponse)
        for partition in answer.topics[0].partitions:
            if partition.error_code:
                raise BrokerRefusedError(f"OffsetCommit: error code {partition.error_code}")


def end_offset(records: memoryview, start: int) -> int:
    """The offset after the last whole batch; `start` when there is none."""
    at, end = 0, start
    while at + _BATCH_HEAD.size <= len(records):
        base_offset, batch_length, last_offset_delta = _BATCH_HEAD.unpack_from(records, at)
        at += 12 + batch_length
        if at > len(records):
            break
        end = base_offset + last_offset_delta + 1
    return end


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """Warm up, then one load from the beginning to the end."""
    with running(kind, turn, directory, plan, config=_CONFIG) as bench:
        bench.attempt("long", partial(_measure, bench))


def _measure(bench: Bench) -> None:
    turn, size = bench.turn, bench.plan.size
    bench.on_topic(
        "warm-up", workloads.PRODUCE_CONNECTIONS, lambda topic: bench.warm_up(workloads.warm_up(topic, size.pace.warm_up_slice_s))
    )
    uvloop.run(groups.wait_for_coordinator(bench.broker.port))
    with Admin("127.0.0.1", bench.broker.port) as admin:
        (topic,) = admin.create_topics(["long"], _PARTITIONS, _TOPIC_CONFIG)
    bench.settle()
    batch = workloads.batch_of_16_kib("none")(int(time.time() * 1000))
    load = Load(
        [frames.produce(topic.name, partition, batch) for partition in range(topic.partitions)],
        workloads.PRODUCE_CONNECTIONS,
        1,
        size.pace.warm_up_s,
        size.long_s,
        RATE,
        error_offsets=frames.produce_error_offsets(topic.name),
        interval_s=max(size.long_s / _INTERVALS, 0.5),
    )
    courses = turn.courses
    for name in ("memory", "files", "p50", "p99"):
        courses[name] = []
    withheld = Withheld(courses)
    pid = bench.broker.pid

    def on_interval(interval: Interval) -> None:
        at, latency = interval.at_s, interval.latency_ns
        courses["memory"].append((at, process.resident_bytes(pid) / 1e6))
        courses["files"].append((at, sum(len(os.listdir(f"/proc/{one}/fd")) for one in process.tree(pid))))
        withheld.note(interval)
        if latency.count:  # in a stall nothing is answered, and what comes after it says how long that was
            courses["p50"].append((at, latency.percentile(50) / 1e6))
            courses["p99"].append((at, latency.percentile(99) / 1e6))

    with TailReader(bench.broker.port, topic) as reader:
        measured = bench.load(load, on_interval)
    bench.keep("long", f"16 KiB at {RATE:,} req/s for {size.long_s:.0f} s", measured)
    if reader.failure:
        raise BrokerRefusedError(reader.failure)
    at_least = measured.responses * workloads.RECORDS_OF_16_KIB
    if reader.records < at_least:
        raise BrokerRefusedError(f"the reader at the tail saw {reader.records:,} records of at least {at_least:,}")
    turn.numbers["memory_end_mb"] = courses["memory"][-1][1]
    turn.numbers["memory_growth_mb"] = max(growth(second_half(courses["memory"])), 0.0)
    turn.numbers["files_growth"] = max(growth(second_half(courses["files"])), 0.0)
    turn.numbers["p99_drift"] = drift(courses["p99"])
    turn.numbers["cpu_share"] = measured.broker_cpu_s / measured.window_s
    turn.numbers["stolen_share"] = withheld.stolen_s / measured.window_s


def second_half(course: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    return course[len(course) // 2 :]


def growth(course: Sequence[tuple[float, float]]) -> float:
    """The rise of the best straight line over the course; 0 for fewer than two points."""
    if len(course) < 2:
        return 0.0
    slope = statistics.linear_regression([at for at, _ in course], [value for _, value in course]).slope
    return slope * (course[-1][0] - course[0][0])


def drift(course: Sequence[tuple[float, float]]) -> float:
    """The median of the last third divided by that of the first; 1 for a course too short for thirds."""
    third = len(course) // 3
    first, last = [value for _, value in course[:third]], [value for _, value in course[-third:]]
    return statistics.median(last) / statistics.median(first) if third and statistics.median(first) else 1.0


def lines(size: Size) -> Sequence[Line]:
    return (
        *(Line(f"long-p{at:g}", f"{percent_name(at)} over all", "ms", latency_of("long", at), 2, True) for at in (50, 99, 99.9, 100)),
        Line("p99-drift", "p99, last third over first third", "×", number("p99_drift"), 2, True, at_most=1.5, is_compared=False),
        Line("memory-end", "resident memory at the end", "MB", number("memory_end_mb"), 0, True),
        Line("memory-growth", "growth of it in the second half", "MB", number("memory_growth_mb"), 1, True, at_most=5, is_compared=False),
        Line("files-growth", "growth of open files in the second half", "files", number("files_growth"), 0, True, is_compared=False),
        Line("cpu-share", "processor share", "%", number("cpu_share", 0.01), 1, True),
        Line("stolen-share", "time that the machine's host withheld", "%", number("stolen_share", 0.01), 2, True, is_compared=False),
    )


def _courses(names: Sequence[str], turns: Sequence[Turn]) -> Mapping[str, Sequence[tuple[float, float]]]:
    return {name: turns[-1].courses[name] for name in names if turns and turns[-1].courses.get(name)}


PART = Part(
    key="long",
    title="A long run",
    about=f"One broker on one core: {RATE:,} batches of 16 KiB a second to eight partitions whose segments of 16 MiB are deleted beyond "
    "48 MiB, one reader at the tail of all of them, which commits every second over a new connection.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
    curves=(
        Curve("long-memory", "resident memory", "seconds", "MB", partial(_courses, ("memory",))),
        Curve("long-latency", "latency", "seconds", "ms", partial(_courses, ("p50", "p99", "longest", "stolen")), is_log=True),
    ),
)
