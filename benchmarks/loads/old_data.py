"""Moves the data of topics into a remote store, and reads it back as a consumer does.

A topic is filled first, and gets its tiered storage afterwards, so that copying can be measured alone.
"""

import multiprocessing
import random
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from benchmarks.brokers import process
from benchmarks.loadgen.runner import LoadFailedError
from benchmarks.loads import frames
from benchmarks.loads.admin import Admin, BrokerRefusedError, Topic
from benchmarks.loads.frames import Asked
from benchmarks.loads.stage import Stage
from benchmarks.loads.workloads import RECORDS_OF_16_KIB, batch_of_16_kib
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.schema.registry import api

PARTITIONS: Final = 3
FETCH_BYTES: Final = 1 << 20
"""Of each partition, as `max.partition.fetch.bytes` of consumers."""
_TOPIC_RESOURCE: Final = 2
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
"""Timestamps in ListOffsets that stand for offsets."""
_WITH_ALL_KINDS: Final = 9
_PATIENCE_S: Final = 600.0
_POLL_S: Final = 0.03
_LENGTH: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class OldData:
    """A topic. The records before `ends` of its partitions are in the remote store when they were moved away, `size` bytes in all."""

    topic: Topic
    ends: Sequence[int]
    size: int
    batch_bytes: int
    batch_records: int


@dataclass(frozen=True, slots=True)
class Copying:
    """The time that copying took, from the change of the topic on, and the broker's processor time meanwhile."""

    seconds: float
    cpu_s: float


def fill(stage: Stage, name: str, segment_bytes: int, segments: int, partitions: int = PARTITIONS) -> OldData:
    """A topic with this many closed segments in every partition, all of them on the broker. Raises LoadFailedError, BrokerRefusedError."""
    (topic,) = stage.topics([name], partitions, {"segment.bytes": str(segment_bytes), "retention.ms": "-1", "retention.bytes": "-1"})
    batch = batch_of_16_kib("none")(int(time.time() * 1000))
    in_segment = segment_bytes // len(batch)
    stage.fill(topic, range(partitions), batch, in_segment * segments + 1)
    ends = [stage.bench.segments(name, partition)[-1] for partition in range(partitions)]
    return OldData(topic, ends, sum(ends) // RECORDS_OF_16_KIB * len(batch), len(batch), RECORDS_OF_16_KIB)


def copy(stage: Stage, data: OldData) -> Copying:
    """Switch tiered storage on, and wait until all closed segments are in the store. Raises BrokerRefusedError."""
    pid = stage.bench.broker.pid
    with Admin("127.0.0.1", stage.bench.broker.port) as admin:
        began, cpu_s = time.monotonic(), process.cpu_s(pid)
        change(admin, data.topic, {"remote.storage.enable": "true"})
        ends = data.ends
        until(
            lambda: all(at >= end - 1 for at, end in zip(found_offsets(admin, data.topic, LATEST_TIERED), ends, strict=True)),
            "all is copied",
        )
        return Copying(time.monotonic() - began, process.cpu_s(pid) - cpu_s)


def begin_copying(stage: Stage, data: OldData) -> None:
    """Switch tiered storage on. Raises BrokerRefusedError."""
    with Admin("127.0.0.1", stage.bench.broker.port) as admin:
        change(admin, data.topic, {"remote.storage.enable": "true"})


def move_away(stage: Stage, data: OldData) -> None:
    """Have the broker delete its closed segments, which are copied, and wait for that. Raises BrokerRefusedError."""
    with Admin("127.0.0.1", stage.bench.broker.port) as admin:
        change(admin, data.topic, {"local.retention.bytes": "1"})
    partitions = range(data.topic.partitions)
    until(lambda: all(len(stage.bench.segments(data.topic.name, each)) == 1 for each in partitions), "all is in the store only")
    time.sleep(stage.pace.duration_s / 4)  # Apache Kafka removes the renamed files half a second later


def change(admin: Admin, topic: Topic, config: Mapping[str, str]) -> None:
    """Set keys of a topic. Raises BrokerRefusedError."""
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in config.items()]
    resource = AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=topic.name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse).responses
    if answer.error_code:
        raise BrokerRefusedError(f"IncrementalAlterConfigs: error code {answer.error_code}, {answer.error_message}")


def found_offsets(admin: Admin, topic: Topic, kind: int) -> list[int]:
    """The answer of ListOffsets for each partition to a timestamp that stands for a kind of offset; -1 without one, or after an error."""
    wanted = [ListOffsetsPartition(partition_index=at, timestamp=kind) for at in range(topic.partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=wanted)])
    (found,) = admin.ask(ApiKey.LIST_OFFSETS, request, ListOffsetsResponse, _WITH_ALL_KINDS).topics
    offsets = {partition.partition_index: -1 if partition.error_code else partition.offset for partition in found.partitions}
    return [offsets[at] for at in range(topic.partitions)]


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition. Raises LoadFailedError after ten minutes."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise LoadFailedError(f"{_PATIENCE_S:.0f} s have passed before {what}")
        time.sleep(_POLL_S)


class OldReader:
    """One connection that reads a topic as a consumer does: a request at a time, for all of its partitions."""

    def __init__(self, port: int, topic: Topic) -> None:
        self._topic = topic
        self._socket = socket.create_connection(("127.0.0.1", port), _PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(4 << 20)
        self.received = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fetch(self, offsets: Mapping[int, int], max_bytes: int = FETCH_BYTES) -> dict[int, int]:
        """Ask for partitions from these offsets on. Returns the next offset of those with data. Raises LoadFailedError."""
        asked = [Asked(partition, offset, max_bytes) for partition, offset in offsets.items()]
        self._socket.sendall(frames.fetch_partitions(self._topic.name, self._topic.topic_id, asked))
        (length,) = _LENGTH.unpack(self._receive(_LENGTH.size))
        answer = self._receive(length)
        _, body = ResponseHeader.decode(answer, api(ApiKey.FETCH).response_header_version(frames.VERSIONS[ApiKey.FETCH]))
        response, _ = FetchResponse.decode(answer, frames.VERSIONS[ApiKey.FETCH], body)
        found = {}
        for topic in response.responses:
            for each in topic.partitions:
                if each.error_code:
                    raise LoadFailedError(f"Fetch of old data: {ErrorCode.of(each.error_code).name}")
                records = each.records or b""
                headers = [header for _, header in iter_batches(records)]
                if headers:
                    self.received += len(records)
                    found[each.partition_index] = headers[-1].base_offset + headers[-1].last_offset_delta + 1
        return found

    def _receive(self, count: int) -> memoryview:
        if count > len(self._buffer):
            self._buffer = bytearray(count)
        view, at = memoryview(self._buffer)[:count], 0
        while at < count:
            more = self._socket.recv_into(view[at:])
            if not more:
                raise LoadFailedError("the broker closed the connection of a reader of old data")
            at += more
        return view


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """One consumer's way through all old data. `width` is the mean number of partitions with data, while all had more."""

    first_s: float
    seconds: float
    received: int
    width: float

    @property
    def mb_per_s(self) -> float:
        """Its speed."""
        return self.received / self.seconds / 1e6


def catch_up(port: int, data: OldData, is_over: Callable[[], bool] = lambda: False) -> CaughtUp:
    """Read a topic from the beginning to the end of its old data, unless it `is_over` before. Raises LoadFailedError."""
    with OldReader(port, data.topic) as reader:
        began = time.monotonic()
        offsets = dict.fromkeys(range(data.topic.partitions), 0)
        while not (found := reader.fetch({0: 0})):
            pass
        offsets |= found
        first_s = time.monotonic() - began
        widths = []
        while offsets and not is_over():
            found = reader.fetch(offsets)
            if len(offsets) == data.topic.partitions:
                widths.append(len(found))
            offsets |= found
            offsets = {partition: offset for partition, offset in offsets.items() if offset < data.ends[partition]}
        return CaughtUp(first_s, time.monotonic() - began, reader.received, sum(widths) / max(len(widths), 1))


def jumps(data: OldData, piece_bytes: int, seed: int) -> list[tuple[int, int]]:
    """A place in every piece of the old data, in random order: partition and offset."""
    chosen = random.Random(seed)
    step = piece_bytes // data.batch_bytes * data.batch_records
    places = [
        (partition, chosen.randrange(start, min(start + step, end)))
        for partition, end in enumerate(data.ends)
        for start in range(0, end - data.batch_records * (FETCH_BYTES // data.batch_bytes), step)
    ]
    chosen.shuffle(places)
    return places


def jump_about(port: int, data: OldData, places: Sequence[tuple[int, int]]) -> list[float]:
    """Seconds until a MiB from each of these places was received, less a batch. Raises LoadFailedError."""
    taken = []
    with OldReader(port, data.topic) as reader:
        for partition, start in places:
            offset = start
            began, end = time.monotonic(), reader.received + FETCH_BYTES - data.batch_bytes
            while reader.received < end and offset < data.ends[partition]:
                offset = reader.fetch({partition: offset}, FETCH_BYTES).get(partition, offset)
            taken.append(time.monotonic() - began)
    return taken


def crowd(pid: int, port: int, data: OldData, readers: int) -> tuple[int, float]:
    """Have consumers read all old data at once. Returns by how much the broker's memory grew at most, bytes, and how fast one read."""
    queue: multiprocessing.Queue[float] = multiprocessing.Queue()
    before = highest = process.resident_bytes(pid)
    members = [multiprocessing.Process(target=_join_crowd, args=(port, data, queue)) for _ in range(readers)]
    for member in members:
        member.start()
    while any(member.is_alive() for member in members):
        highest = max(highest, process.resident_bytes(pid))
        time.sleep(_POLL_S)
    if any(member.exitcode for member in members):
        raise LoadFailedError("a reader of old data has failed")
    return highest - before, min(queue.get() for _ in members)


def _join_crowd(port: int, data: OldData, queue: "multiprocessing.Queue[float]") -> None:
    queue.put(catch_up(port, data).mb_per_s)
