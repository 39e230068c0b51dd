"""Fetch and ListOffsets of what is not in the page cache: a thread reads first, the answer comes later, and is the same."""

import asyncio
from typing import Any

import pytest

from ottla.broker.handlers.data import list_offsets
from ottla.broker.request.repeats import MAX_REPEATS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsTopic
from tests.support.filesystems import MemoryFile
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.replicas import TOPIC, state

ROUNDS = 3


def cold_bench() -> HandlerBench:
    """A partition of several segments; the next reads of old ones find nothing in the page cache, until three were read by a thread."""
    bench = HandlerBench(segment_bytes="300")
    bench.replicas.say(state(isr=[0], replicas=[0]))
    bench.know(p0=0)
    for _ in range(12):
        bench.replicas.append(2)
    return bench


@pytest.fixture(autouse=True)
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which files were found cold."""
    refused: list[str] = []

    def pread_cached(file: MemoryFile, length: int, at: int) -> bytes | None:
        if len(refused) < ROUNDS:
            refused.append(file.path)
            return None
        return file.pread(length, at)

    monkeypatch.setattr(MemoryFile, "pread_cached", pread_cached)
    return refused


async def answered(asking: Asking) -> Asking:
    """The same, when the answer is there."""
    for _ in range(5000):
        if not asking.waits:
            return asking
        await asyncio.sleep(0.001)
    raise AssertionError("there is no answer")


def test_a_cold_fetch_is_answered_like_a_warm_one(refusals: list[str]) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = cold_bench()
        asking = bench.fetch(1, partition_max_bytes=100)
        assert asking.waits
        (cold,) = (await answered(asking)).fetched
        assert len(refusals) == ROUNDS
        (warm,) = bench.fetch(1, partition_max_bytes=100).fetched
        assert cold == warm
        assert cold.records

    scenario()


def test_a_fetch_from_the_tail_is_answered_at_once(refusals: list[str]) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = cold_bench()
        assert bench.fetch(23).fetched[0].records
        assert not refusals

    scenario()


def test_a_cold_search_by_time_is_answered_like_a_warm_one(refusals: list[str]) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = cold_bench()
        topics = [ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=1)])]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        asking = bench.ask(request, ApiKey.LIST_OFFSETS, 7)
        assert asking.waits
        cold = (await answered(asking)).response
        assert len(refusals) == ROUNDS
        assert cold == bench.ask(request, ApiKey.LIST_OFFSETS, 7).response
        assert cold.topics[0].partitions[0].offset == 0

    scenario()


def test_partitions_that_are_not_cold_are_searched_once(refusals: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    list_one = list_offsets._list_one

    def counted(topic: str, asked: ListOffsetsPartition, *args: Any) -> ListOffsetsPartitionResponse:
        searched.append(asked.partition_index)
        return list_one(topic, asked, *args)

    monkeypatch.setattr(list_offsets, "_list_one", counted)

    @on_a_loop
    async def scenario() -> None:
        bench = cold_bench()
        partitions = [ListOffsetsPartition(partition_index=index, timestamp=1) for index in (5, 0, 6)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])
        found = (await answered(bench.ask(request, ApiKey.LIST_OFFSETS, 7))).response.topics[0].partitions
        assert searched == [5, 0, 6] + [0] * ROUNDS
        assert [(each.partition_index, each.offset) for each in found] == [(5, -1), (0, 0), (6, -1)]

    scenario()


def test_version_0_lists_the_segments_of_a_partition_a_few_times() -> None:
    @on_a_loop
    async def scenario() -> None:
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1, max_num_offsets=100) for _ in range(100)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])
        found = cold_bench().ask(request, ApiKey.LIST_OFFSETS, 0).response.topics[0].partitions
        assert [bool(each.old_style_offsets) for each in found] == [True] * (1 + MAX_REPEATS) + [False] * (99 - MAX_REPEATS)
        assert {each.error_code for each in found[1 + MAX_REPEATS :]} == {ErrorCode.INVALID_REQUEST}

    scenario()


def test_version_0_looks_into_old_segments_only_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []

    def is_cached(file: MemoryFile, length: int, at: int) -> bool:
        if len(refused) < ROUNDS:
            refused.append(file.path)
            return False
        return True

    monkeypatch.setattr(MemoryFile, "is_cached", is_cached)

    def ask(bench: HandlerBench, timestamp: int) -> Asking:
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=100)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])
        return bench.ask(request, ApiKey.LIST_OFFSETS, 0)

    @on_a_loop
    async def scenario() -> None:
        bench = cold_bench()
        log = bench.replicas.partition.log
        for segment in log.segments:
            segment.knows_max_timestamp = segment is log.segments.active  # as after a start
        for timestamp in (-1, -2):
            assert not ask(bench, timestamp).waits
        assert not refused
        cold = ask(bench, 2**62)
        assert cold.waits
        (partition,) = (await answered(cold)).response.topics[0].partitions
        assert partition.old_style_offsets == [log.log_end_offset, *reversed(log.segments.bases)]
        assert len(refused) == ROUNDS

    scenario()
