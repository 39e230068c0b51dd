"""Measures consumer groups beside Apache Kafka's: `python -m benchmarks.comparisons.groups [--members N ...] [--records N] [--kinds
KINDS]`.

Each kind in turn, on all cores, with one partition of `__consumer_offsets`:

    commits   offset commits of eight consumers, each with four requests in flight, answered per second; of one partition, and of 100
    rebalance from the first JoinGroup to the moment when every member of a group of N has its assignment; the initial delay of 200 ms,
              which begins anew with every member that joins, is part of it
    load      the broker is killed and started again: until offsets are served, from a log of N offset records. They are N / 200 commits of
              one group's 200 offsets, or each is another group's, so that all N offsets are there afterwards

This process plays the members with prepared frames, so only the brokers are compared. Beside each wait the table has its cost for the
broker: processor seconds of its process, counted from its start where the broker was restarted.
"""

import argparse
import asyncio
import shutil
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.brokers.kinds import COMMON_CONFIG, COMPARED, KINDS, REFERENCE, Broker
from benchmarks.brokers.process import cpu_s, resident_bytes
from benchmarks.loadgen.runner import Load, run_load
from benchmarks.loads import frames
from benchmarks.loads.admin import Admin
from benchmarks.loads.frames import request_frame
from benchmarks.report.table import side_by_side
from benchmarks.turns.choices import several
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api

TOPIC = "groups"
PARTITIONS = 200
COMMIT_CONNECTIONS = 8
COMMITS_IN_FLIGHT = 4
COMMIT_SECONDS = 4.0
COMMIT_SIZES = (1, 100)
CONFIG = {"group.initial.rebalance.delay.ms": "200", "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}
PATIENCE_S = 120.0
HEARTBEAT_S = 0.5
SUBSCRIPTION = struct.pack(f">hih{len(TOPIC)}si", 0, 1, len(TOPIC), TOPIC.encode(), -1)
"""ConsumerProtocolSubscription v0. Apache Kafka parses it, and never answers when it cannot."""

_Answer = TypeVar("_Answer", bound=Message)


@dataclass(slots=True)
class Result:
    """The results of the turns of one kind, by line."""

    numbers: dict[str, list[float]] = field(default_factory=dict)

    def add(self, line: str, value: float) -> None:
        """One turn's number."""
        self.numbers.setdefault(line, []).append(value)


@dataclass(frozen=True, slots=True)
class Measure:
    """A line of the table: its key in `Result.numbers`, and its format."""

    key: str
    title: str
    unit: str
    digits: int
    more_is_better: bool = False


def measures(members: Sequence[int], records: int) -> list[Measure]:
    """All lines, in order."""
    found = []
    for size in COMMIT_SIZES:
        what = "offset commits" if size == 1 else f"commits of {size} offsets"
        found += [
            Measure(f"commits_{size}", what, "1/s", 0, more_is_better=True),
            Measure(f"commits_{size}_p99_ms", f"{what}: p99", "ms", 2),
            Measure(f"commits_{size}_cpu_us", f"{what}: processor time", "µs", 0),
        ]
    for count in members:
        what = f"{count:,} members: first join to stable"
        found += [Measure(f"rebalance_{count}_s", what, "s", 3), Measure(f"rebalance_{count}_cpu_s", f"{what}: processor time", "s", 2)]
    for key, offsets in (("load", PARTITIONS), ("load_distinct", records)):
        what = f"{records:,} records of {offsets:,} offsets: killed, started, served again"
        found += [Measure(f"{key}_s", what, "s", 2), Measure(f"{key}_cpu_s", f"{what}: processor time", "s", 2)]
    found.append(Measure("load_distinct_mb", f"resident memory with {records:,} offsets", "MB", 0))
    return found


class Asker:
    """One connection that sends a request and waits for its answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self) -> None:
        """Connect before the measurement, which must not include a queue of connections."""
        self._streams = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self, key: ApiKey, request: Message, answers: type[_Answer]) -> _Answer:
        """Raises ConnectionError."""
        if self._streams is None:
            await self.connect()
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(request_frame(key, request))
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        answer = await reader.readexactly(length)
        version = frames.VERSIONS[key]
        _, body = ResponseHeader.decode(answer, api(key).response_header_version(version))
        return answers.decode(answer, version, body)[0]

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


def commit_frame(group: str, first: int, count: int) -> bytes:
    """A commit of `count` partitions by a consumer without a group membership."""
    partitions = [OffsetCommitRequestPartition(partition_index=first + i, committed_offset=1, committed_metadata="") for i in range(count)]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    return request_frame(ApiKey.OFFSET_COMMIT, OffsetCommitRequest(group_id=group, topics=topics))


def commit_error_offsets(count: int) -> tuple[int, ...]:
    """Where the error codes of a commit's partitions stand."""

    def answer(code: int) -> OffsetCommitResponse:
        partitions = [OffsetCommitResponsePartition(partition_index=i, error_code=code) for i in range(count)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=TOPIC, partitions=partitions)])

    return (frames.error_offset(ApiKey.OFFSET_COMMIT, answer),)


def measure_commits(broker: Broker, size: int, result: Result) -> None:
    """Commits of `size` partitions each, as fast as they are answered."""
    load = Load(
        frames=[commit_frame(f"committing-{number}", number, size) for number in range(COMMIT_CONNECTIONS)],
        connections=COMMIT_CONNECTIONS,
        in_flight=COMMITS_IN_FLIGHT,
        warm_up_s=COMMIT_SECONDS,
        duration_s=COMMIT_SECONDS,
        error_offsets=commit_error_offsets(size),
    )
    measured = run_load("127.0.0.1", broker.port, load, probe=lambda: cpu_s(broker.pid))
    result.add(f"commits_{size}", measured.per_second)
    result.add(f"commits_{size}_p99_ms", measured.latency_ns.percentile(99) / 1e6)
    result.add(f"commits_{size}_cpu_us", measured.broker_cpu_s / measured.answered * 1e6)


async def wait_for_coordinator(port: int) -> None:
    """Ask until there is a coordinator, whose topic the first request creates, and until it has loaded its partitions, which are empty."""
    asker = Asker(port)
    deadline = time.monotonic() + PATIENCE_S
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["any"])
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="any", topics=None)])
    while True:
        (found,) = (await asker.ask(ApiKey.FIND_COORDINATOR, find, FindCoordinatorResponse)).coordinators
        error = found.error_code
        if error == ErrorCode.NONE:
            (group,) = (await asker.ask(ApiKey.OFFSET_FETCH, fetch, OffsetFetchResponse)).groups
            error = group.error_code
        if error == ErrorCode.NONE:
            asker.close()
            return
        assert time.monotonic() < deadline, f"no coordinator: {ErrorCode.of(error).name}"
        await asyncio.sleep(0.05)


class Member:
    """One member of a group; the leader gives every member an assignment of a few bytes."""

    def __init__(self, port: int, group: str) -> None:
        self._asker = Asker(port)
        self._group = group
        self._member_id = ""

    async def connect(self) -> None:
        """See Asker."""
        await self._asker.connect()

    async def become_stable(self) -> int:
        """Join and sync until an assignment arrives. Returns its generation."""
        while True:
            joined = await self._join()
            everybody = [member.member_id for member in joined.members]
            assignments = [SyncGroupRequestAssignment(member_id=each, assignment=b"assignment") for each in everybody]
            sync = SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            )
            synced = await self._asker.ask(ApiKey.SYNC_GROUP, sync, SyncGroupResponse)
            if synced.error_code == ErrorCode.NONE:
                return joined.generation_id
            assert synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.of(synced.error_code).name

    async def is_stable(self, generation: int) -> bool:
        """Whether the answer to a heartbeat reports no rebalance."""
        heartbeat = HeartbeatRequest(group_id=self._group, generation_id=generation, member_id=self._member_id)
        answered = await self._asker.ask(ApiKey.HEARTBEAT, heartbeat, HeartbeatResponse)
        assert answered.error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS), ErrorCode.of(answered.error_code).name
        return answered.error_code == ErrorCode.NONE

    async def _join(self) -> JoinGroupResponse:
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
            )
            joined = await self._asker.ask(ApiKey.JOIN_GROUP, request, JoinGroupResponse)
            self._member_id = joined.member_id
            if joined.error_code == ErrorCode.NONE:
                return joined
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.of(joined.error_code).name

    def close(self) -> None:
        self._asker.close()


async def seconds_to_stable(port: int, members: int) -> float:
    """From the first JoinGroup until all members are in one generation and have their assignments."""
    group = f"rebalancing-{members}-{time.monotonic_ns()}"
    crowd = [Member(port, group) for _ in range(members)]
    for member in crowd:
        await member.connect()
    began = time.monotonic()
    generations: dict[Member, int] = {}
    done = asyncio.Event()

    async def take_part(member: Member) -> None:
        while not done.is_set():
            generations[member] = await member.become_stable()
            if len(generations) == members and len(set(generations.values())) == 1:
                done.set()
            while not done.is_set() and await member.is_stable(generations[member]):
                with suppress(TimeoutError):
                    await asyncio.wait_for(done.wait(), HEARTBEAT_S)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(take_part(member) for member in crowd))
    took = time.monotonic() - began
    for member in crowd:
        member.close()
    return took


def loaded_group(number: int) -> str:
    """The name of one of the groups that are loaded; all are equally long."""
    return f"loaded-{number:06}"


def fill(port: int, records: int, groups: int) -> None:
    """Commit `records` offsets of `groups` groups in turn, all partitions of a topic at a time."""
    load = Load(
        frames=[commit_frame(loaded_group(number), 0, PARTITIONS) for number in range(groups)],
        connections=1,  # so that the groups come in order
        in_flight=4,
        warm_up_s=0.0,
        duration_s=PATIENCE_S,
        total=records // PARTITIONS,
        error_offsets=commit_error_offsets(PARTITIONS),
    )
    run_load("127.0.0.1", port, load)


async def seconds_to_load(port: int, group_id: str) -> float:
    """Seconds from now until the offsets of the group are answered."""
    began = time.monotonic()
    asker = Asker(port)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
    while True:
        (group,) = (await asker.ask(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse)).groups
        if group.error_code == ErrorCode.NONE and group.topics:
            assert len(group.topics[0].partitions) == PARTITIONS
            asker.close()
            return time.monotonic() - began
        assert time.monotonic() - began < PATIENCE_S, "the offsets did not come back"
        await asyncio.sleep(0.005)


def measure_load(broker: Broker, records: int, groups: int, key: str, result: Result) -> None:
    """Kill the broker once the log has `records` records, and start it again."""
    fill(broker.port, records, groups)
    broker.restart()
    result.add(f"{key}_s", uvloop.run(seconds_to_load(broker.port, loaded_group(groups - 1))))
    result.add(f"{key}_cpu_s", cpu_s(broker.pid))


def measure_rebalance(broker: Broker, members: int, result: Result) -> None:
    """Measure the first rebalance of a group of `members` members."""
    uvloop.run(seconds_to_stable(broker.port, min(members, 20)))  # warm
    before_s = cpu_s(broker.pid)
    result.add(f"rebalance_{members}_s", uvloop.run(seconds_to_stable(broker.port, members)))
    result.add(f"rebalance_{members}_cpu_s", cpu_s(broker.pid) - before_s)


def prepared(broker: Broker) -> None:
    """The broker, started, with the topic for which offsets are committed, and a coordinator."""
    broker.start()
    with Admin("127.0.0.1", broker.port) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
    uvloop.run(wait_for_coordinator(broker.port))


def take_turn(
    new_broker: Callable[[str], Broker], result: Result, members: Sequence[int], records: int, between: Callable[[], None] = lambda: None
) -> None:
    """All measurements on a new broker, and the last part on another one; `new_broker` gets a name for each.

    `between` is called after each measurement.
    """
    broker = new_broker("first")
    try:
        prepared(broker)
        for size in COMMIT_SIZES:
            measure_commits(broker, size, result)
            between()
        for count in members:
            measure_rebalance(broker, count, result)
            between()
    finally:
        broker.stop()
    for key, groups in (("load", 1), ("load_distinct", records // PARTITIONS)):
        broker = new_broker(key)
        try:
            prepared(broker)
            measure_load(broker, records, groups, key, result)
            result.add(f"{key}_mb", resident_bytes(broker.pid) / 1e6)
        finally:
            broker.stop()
        between()


def table(results: dict[str, Result], members: Sequence[int], records: int) -> Table:
    """A line per measure: medians of the turns, and the ratios of the other kinds to the first."""
    reference, *others = results
    shown = side_by_side("Consumer groups, side by side", list(results))
    for measure in measures(members, records):
        medians = {label: statistics.median(result.numbers[measure.key]) for label, result in results.items()}
        base = medians[reference]
        ratios = [medians[each] / base if measure.more_is_better else base / medians[each] for each in others]
        cells = [f"{value:,.{measure.digits}f}" for value in medians.values()]
        shown.add_row(measure.title, measure.unit, *cells, *(f"{ratio:.2f} ×" for ratio in ratios))
    return shown


def a_broker(kind: str, directory: Path, config: Mapping[str, str], name: str) -> Broker:
    """One of a kind, with a folder of its own in the directory."""
    return KINDS[kind](directory / name, config=config)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparisons.groups", description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--kinds", type=several("kind of broker", KINDS), default=list(COMPARED), help="the first is the reference")
    asked = parser.parse_args(arguments)
    kinds = sorted(asked.kinds, key=lambda kind: kind != REFERENCE)
    results = {KINDS[kind].label: Result() for kind in kinds}
    scratch = Path(tempfile.mkdtemp(prefix="benchmark-groups-"))
    try:
        for turn in range(asked.repeats):
            for kind in kinds:
                directory = scratch / f"{kind}-{turn}"
                new_broker = partial(a_broker, kind, directory, {**COMMON_CONFIG, **CONFIG})
                take_turn(new_broker, results[KINDS[kind].label], asked.members, asked.records)
                shutil.rmtree(directory, ignore_errors=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    Console().print(table(results, asked.members, asked.records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
