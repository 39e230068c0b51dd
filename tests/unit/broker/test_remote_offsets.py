"""ListOffsets where a part of the log is in the remote store only."""

import asyncio
from dataclasses import replace

import pytest

from ottla.broker.handlers.data import remote_offsets
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsTopic
from ottla.storage.log.origins import CLIENT
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import RemoteStoreError
from ottla.storage.remote.tier import Tier
from tests.support.batches import FIRST_TIMESTAMP, a_batch, a_run
from tests.support.handler_bench import Asking, on_a_loop
from tests.support.replicas import TOPIC
from tests.support.tiered_bench import TieredBench

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)


def ask(bench: TieredBench, *timestamps: int, version: int = 9, index: int = 0) -> Asking:
    partitions = [ListOffsetsPartition(partition_index=index + at, timestamp=timestamp) for at, timestamp in enumerate(timestamps)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])
    return bench.ask(request, ApiKey.LIST_OFFSETS, version)


async def offset_of(bench: TieredBench, timestamp: int, version: int = 9) -> ListOffsetsPartitionResponse:
    found: ListOffsetsPartitionResponse = (await bench.answered(ask(bench, timestamp, version=version))).response.topics[0].partitions[0]
    return found


def fill_with_times(bench: TieredBench) -> None:
    """Each batch of two records is ten milliseconds behind the one before; that at offset 20 has the largest time."""
    partition = bench.replicas.manager.partitions[TOPIC][0]
    for at in range(30):
        time = FIRST_TIMESTAMP + (10 * at if at != 10 else 100_000)
        partition.append(a_run(a_batch(2, timestamps=[time, time + 1])), -1, bench.replicas.clock.now_ms(), CLIENT)


def test_a_time_is_found_as_if_all_were_here() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        fill_with_times(bench)
        times = [FIRST_TIMESTAMP + time for time in range(0, 300, 7)]
        expected = [await offset_of(bench, time) for time in times]
        reading = await bench.move_away(chunk_bytes=300)
        assert [await offset_of(bench, time) for time in times] == expected
        assert len({found.offset for found in expected}) > 8
        assert reading.store.fetches

    scenario()


def test_a_time_that_only_local_records_have_reads_nothing_from_the_store() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        partition = bench.replicas.manager.partitions[TOPIC][0]
        reading = await bench.move_away()
        partition.append(a_run(a_batch(1, timestamps=[FIRST_TIMESTAMP + 50_000])), -1, 1, CLIENT)
        assert (await offset_of(bench, FIRST_TIMESTAMP + 1000)).offset == 60
        assert not reading.store.fetches
        assert not reading.store.indexes

    scenario()


def test_the_largest_time_is_found_in_the_store_and_here() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        fill_with_times(bench)
        expected = await offset_of(bench, MAX_TIMESTAMP)
        reading = await bench.move_away()
        assert await offset_of(bench, MAX_TIMESTAMP) == expected
        assert expected.offset == 21
        fetches = len(reading.store.fetches)
        partition = bench.replicas.manager.partitions[TOPIC][0]
        partition.append(a_run(a_batch(1, timestamps=[FIRST_TIMESTAMP + 200_000])), -1, 1, CLIENT)
        assert (await offset_of(bench, MAX_TIMESTAMP)).offset == 60
        assert len(reading.store.fetches) == fetches

    scenario()


def test_a_search_by_time_passes_over_offsets_that_are_nowhere() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        fill_with_times(bench)
        times = range(0, 300, 7)
        before = [(await offset_of(bench, FIRST_TIMESTAMP + time)).offset for time in times]
        await bench.move_away()
        (log,) = bench.logs
        copies = bench.copies[log]
        log.tier = Tier()
        log.tier.entries = lambda epoch: copies
        lost = copies.pop(1)
        first_behind = copies[1].start_offset
        for time, offset in zip(times, before, strict=True):
            expected = first_behind if lost.start_offset <= offset <= lost.end_offset else offset
            assert (await offset_of(bench, FIRST_TIMESTAMP + time)).offset == expected
        assert (await offset_of(bench, MAX_TIMESTAMP)).offset == 21
        copies.clear()
        assert (await offset_of(bench, FIRST_TIMESTAMP)).offset == log.local_log_start_offset

    scenario()


def test_a_search_by_time_passes_over_a_segment_without_records() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        fill_with_times(bench)
        empty = bench.leave_empty()
        await bench.move_away(kept=0)
        (log,) = bench.logs
        copies = bench.copies[log]
        at = next(number for number, entry in enumerate(copies) if entry.start_offset == empty.start)
        copies[at] = replace(copies[at], max_timestamp_ms=FIRST_TIMESTAMP + 1_000_000)  # that of its file
        assert (await offset_of(bench, MAX_TIMESTAMP)).offset == 21
        assert (await offset_of(bench, FIRST_TIMESTAMP + 290)).offset == 20
        assert (await offset_of(bench, FIRST_TIMESTAMP + 500_000)).offset == -1

    scenario()


def test_a_failing_store_is_an_error_that_clients_repeat_and_has_a_line_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        reading = await bench.move_away()
        reading.store.errors = [RemoteStoreError("503")] * 99
        for _ in range(3):
            assert (await offset_of(bench, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        (line,) = [each.getMessage() for each in caplog.records if "503" in each.getMessage()]
        assert line == "orders-0 cannot be read from the remote store: 503; consumers try again"
        reading.store.errors = []
        assert (await offset_of(bench, 0)).offset == 0

    scenario()


def test_metadata_that_is_not_loaded_is_an_error_that_clients_repeat() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        await bench.move_away()
        bench.not_ready = True
        assert (await offset_of(bench, 0)).error_code == ErrorCode.REPLICA_NOT_AVAILABLE

    scenario()


def test_a_store_that_never_answers_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_offsets, "MAX_SECONDS", 0.05)

    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench(partitions=2)
        bench.fill()
        reading = await bench.move_away()
        for entries in bench.copies.values():
            await reading.indexes.load(entries[0])

        async def never(entry: SegmentEntry, start: int, end: int) -> bytes:
            await forever.wait()
            return b""

        forever = asyncio.Event()
        reading.store.fetch = never  # type: ignore[method-assign]  # a store that is stuck
        asking = ask(bench, 0, LATEST)
        for _ in range(1000):
            if not asking.waits:
                break
            await asyncio.sleep(0.001)
        remote, local = asking.response.topics[0].partitions
        assert remote.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
        assert (local.error_code, local.offset) == (0, 60)
        forever.set()

    scenario()
