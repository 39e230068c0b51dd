"""A Fetch of records that are in the remote store only: of all partitions, within its limits, and with errors that wait."""

import asyncio

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import iter_batches, parse_header
from ottla.replication.reading import remote_read
from ottla.storage.log import lookups
from ottla.storage.remote.ports import RemoteStoreError
from tests.support.handler_bench import on_a_loop
from tests.support.remote_reading import quiet
from tests.support.replicas import state
from tests.support.tiered_bench import TieredBench


def records_of(bench: TieredBench, index: int, offset: int, max_bytes: int = 1 << 20) -> bytes:
    """The bytes that the log had at the offset, up to the end of their segment."""
    log = bench.logs[index]
    found = log.read(offset, max_bytes, log.log_end_offset, True)
    assert found.region is not None
    return found.region.read()


def test_a_remote_partition_is_answered_when_its_records_are_here() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        expected = records_of(bench, 0, 3)
        await bench.move_away()
        asking = bench.fetch(3)
        assert asking.waits
        (found,) = (await bench.answered(asking)).fetched
        assert found.records == expected
        assert (found.error_code, found.log_start_offset, found.high_watermark) == (0, 0, 60)
        assert bench.fetch(3).fetched[0].records == expected  # at once, from the cache

    scenario()


def next_offset_after(records: bytes) -> int:
    at = next_offset = 0
    while at < len(records):
        header = parse_header(records, at)
        at, next_offset = at + header.size, header.next_offset
    assert at == len(records)
    return next_offset


@pytest.mark.parametrize("chunk_bytes", [100, 300, 1 << 20])
def test_a_consumer_reads_everything_from_the_log_start_to_the_log_end(chunk_bytes: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        expected = b"".join(segment.file.pread(segment.size, 0) for segment in bench.logs[0].segments)
        await bench.move_away(chunk_bytes=chunk_bytes)
        records, offset = b"", 0
        while offset < 60:
            (found,) = (await bench.answered(bench.fetch(offset, partition_max_bytes=200))).fetched
            assert found.error_code == 0
            assert found.records
            records += found.records
            offset = next_offset_after(found.records)
        assert records == expected

    scenario()


@pytest.mark.parametrize("is_local_behind", [False, True])
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_consumer_reads_over_a_remote_segment_without_records(is_local_behind: bool, isolation_level: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        empty = bench.leave_empty()
        if not is_local_behind:
            bench.fill()
        await bench.move_away(kept=0)
        log = bench.logs[0]
        assert (log.local_log_start_offset == empty.stop) is is_local_behind
        assert [entry.size for entry in bench.copies[log] if entry.start_offset == empty.start] == [0]
        offset, seen = 0, []
        while offset < log.log_end_offset:
            (found,) = (await bench.answered(bench.fetch(offset, isolation_level=isolation_level))).fetched
            assert (found.error_code, bool(found.records)) == (0, True)
            seen.append(parse_header(found.records, 0).base_offset)
            offset = next_offset_after(found.records)
        assert empty.start not in seen
        assert empty.stop in seen
        (found,) = (await bench.answered(bench.fetch(empty.start + 5, isolation_level=isolation_level))).fetched
        assert parse_header(found.records, 0).base_offset == empty.stop

    scenario()


def test_all_remote_partitions_of_a_fetch_are_read() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench(partitions=3)
        bench.fill()
        expected = [records_of(bench, index, 2) for index in range(3)]
        reading = await bench.move_away()
        reading.store.gate = asyncio.Event()
        asking = bench.fetch(2, 2, 2)
        await quiet()
        assert len(reading.store.fetches) == 3  # all of them at once
        reading.store.gate.set()
        answered = (await bench.answered(asking)).fetched
        assert any(found.records for found in answered)
        assert all(found.error_code == 0 for found in answered)
        assert [found.records for found in bench.fetch(2, 2, 2).fetched] == expected

    scenario()


def test_a_fetch_begins_no_more_than_its_limit() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench(partitions=3)
        bench.fill()
        reading = await bench.move_away()
        reading.store.gate = asyncio.Event()
        bench.fetch(2, 2, 2, max_bytes=1000, partition_max_bytes=600)
        await quiet()
        assert len(reading.store.fetches) == 2
        reading.store.gate.set()
        await quiet()

    scenario()


def test_local_records_are_answered_at_once_and_the_remote_ones_by_the_next_fetch() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench(partitions=2)
        bench.fill()
        expected = records_of(bench, 0, 0)
        reading = await bench.move_away()
        reading.store.gate = asyncio.Event()
        remote, local = bench.fetch(0, 59).fetched
        assert (remote.error_code, remote.records) == (0, b"")
        assert local.records
        reading.store.gate.set()
        await quiet()
        asking = bench.fetch(0, 59)
        assert (await bench.answered(asking)).fetched[0].records in (expected, b"")
        await quiet()
        assert bench.fetch(0, 59).fetched[0].records == expected

    scenario()


def test_local_records_that_arrive_are_answered_while_the_store_is_slow() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench(partitions=2)
        bench.fill()
        reading = await bench.move_away()
        reading.store.gate = asyncio.Event()
        asking = bench.fetch(0, 60)
        await quiet()
        assert asking.waits
        bench.replicas.append(1, index=1)
        remote, local = (await bench.answered(asking)).fetched
        assert (remote.error_code, remote.records) == (0, b"")
        assert local.records
        reading.store.gate.set()
        await quiet()

    scenario()


def test_a_slow_store_ends_the_fetch_after_remote_fetch_max_wait_ms_and_the_read_goes_on() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        expected = records_of(bench, 0, 0)
        reading = await bench.move_away()
        await reading.indexes.load(next(iter(bench.copies.values()))[0])
        reading.store.gate = asyncio.Event()
        asking = bench.fetch(0, max_wait_ms=10)
        await quiet()
        local, remote = bench.services.data.fetch_purgatory, bench.services.data.remote_fetch_purgatory
        assert (local.delayed, remote.delayed, remote.watched) == (0, 1, 1)
        bench.time.advance(399)
        await quiet()
        assert asking.waits
        bench.time.advance(2)
        (found,) = (await bench.answered(asking)).fetched
        assert (found.error_code, found.records) == (0, b"")
        assert (remote.delayed, remote.watched, remote.expirations, local.expirations) == (0, 0, 1, 0)
        reading.store.gate.set()
        await quiet()
        assert bench.fetch(0).fetched[0].records == expected
        assert len(reading.store.fetches) == 1

    scenario()


def test_failed_reads_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench(partitions=2)
        bench.fill()
        reading = await bench.move_away()
        reading.store.errors = [RemoteStoreError("503 Slow Down")] * 1000
        for seconds, lines in ((0, 1), (30, 1), (31, 2)):
            bench.replicas.clock.move(seconds * 1000)
            bench.fetch(0, 0)
            await quiet()
            logged = [each.getMessage() for each in caplog.records if each.name == "ottla.replication.reading.remote_read"]
            assert len(logged) == lines
            assert "cannot be read from the remote store: 503 Slow Down" in logged[-1]

    scenario()


@pytest.mark.parametrize("in_session", [False, True])
def test_an_error_of_the_store_is_answered_at_the_end_of_the_wait(in_session: bool) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        reading = await bench.move_away()
        reading.store.errors = [RemoteStoreError("503")] * 1000
        asking = bench.fetch(0, session_epoch=0 if in_session else -1)
        await quiet()
        assert asking.waits
        bench.time.advance(399)
        await quiet()
        assert asking.waits
        asked = len(reading.store.errors)
        bench.time.advance(2)
        (found,) = (await bench.answered(asking)).fetched
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert asked >= 997  # it did not ask again and again
        reading.store.errors = []
        (found,) = (await bench.answered(bench.fetch(0))).fetched
        assert found.error_code == 0
        assert found.records

    scenario()


def test_metadata_that_is_not_loaded_yet_is_answered_at_the_end_of_the_wait() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        await bench.move_away()
        bench.not_ready = True
        asking = bench.fetch(0)
        await quiet()
        assert asking.waits
        bench.time.advance(401)
        assert (await bench.answered(asking)).fetched[0].error_code == ErrorCode.REPLICA_NOT_AVAILABLE

    scenario()


def test_no_segment_for_an_offset_is_no_offset_out_of_range() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        await bench.move_away()
        del bench.copies[bench.logs[0]][0]
        asking = bench.fetch(0)
        await quiet()
        bench.time.advance(401)
        assert (await bench.answered(asking)).fetched[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    scenario()


def test_an_offset_outside_of_the_log_is_out_of_range_at_once() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        await bench.move_away()
        assert bench.fetch(61).fetched[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    scenario()


def test_a_follower_learns_that_the_offset_has_moved_and_where_the_log_starts() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        bench.replicas.say(state(isr=[0], replicas=[0, 1], epoch=7, is_new=False))
        await bench.move_away()
        (found,) = (await bench.answered(bench.fetch(0, version=14, replica_id=1))).fetched
        assert (found.error_code, found.log_start_offset) == (ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, 0)

    scenario()


def test_a_consumer_that_leaves_ends_its_fetch_and_not_the_read() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        reading = await bench.move_away()
        await reading.indexes.load(next(iter(bench.copies.values()))[0])
        reading.store.gate = asyncio.Event()
        asking = bench.fetch(0)
        await quiet()
        assert asking.pending.on_closed is not None
        asking.pending.on_closed()
        reading.store.gate.set()
        await quiet()
        assert bench.fetch(0).fetched[0].records

    scenario()


@pytest.mark.parametrize("version", [0, 3, 4, 11])
def test_clients_of_all_versions_read_remote_records(version: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        await bench.move_away()
        (found,) = (await bench.answered(bench.fetch(0, version=version))).fetched
        assert found.error_code == 0
        assert found.records
        (found,) = (await bench.answered(bench.fetch(0, version=version, partition_max_bytes=50))).fetched
        assert found.records

    scenario()


def test_a_reader_of_committed_records_learns_of_transactions_that_are_aborted_later() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill_with_transactions()
        offsets = [segment.base_offset for segment in bench.logs[0].segments]
        expected = {}
        for offset in offsets:
            (expected[offset],) = bench.fetch(offset, isolation_level=1).fetched
        assert len(offsets) > 4
        await bench.move_away()
        for offset in offsets:
            (found,) = (await bench.answered(bench.fetch(offset, isolation_level=1))).fetched
            assert found.records == expected[offset].records
            assert found.aborted_transactions == expected[offset].aborted_transactions
            assert found.last_stable_offset == expected[offset].last_stable_offset
        assert expected[offsets[0]].aborted_transactions

    scenario()


@pytest.mark.parametrize("chunk_bytes", [1 << 20, 200])
def test_an_answer_ends_where_too_many_transactions_were_aborted(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 3
    for module in (lookups, remote_read):
        monkeypatch.setattr(module, "MOST_ABORTED", most)

    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench(segment_bytes="2000")
        bench.abort_transactions(60)
        log = bench.logs[0]
        assert len(log.segments) > 4
        await bench.move_away(chunk_bytes=chunk_bytes)
        offset, named, largest = 0, [], 0
        while offset < log.log_end_offset:
            (found,) = (await bench.answered(bench.fetch(offset, isolation_level=1))).fetched
            assert found.records
            aborted = [each.first_offset for each in found.aborted_transactions or ()]
            assert len(aborted) <= most + 1  # the long one is open everywhere
            largest = max(largest, len(found.records))
            named += aborted
            *_, (_, last) = iter_batches(found.records)
            assert offset < last.next_offset
            offset = last.next_offset
        assert sorted(set(named)) == [0, *range(1, log.log_end_offset - 1, 2)]
        assert largest > 300

    scenario()


def test_a_full_disk_is_no_reason_not_to_answer() -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = TieredBench()
        bench.fill()
        expected = records_of(bench, 0, 0)
        reading = await bench.move_away()
        reading.chunks._turn_off(OSError("no space"))
        (found,) = (await bench.answered(bench.fetch(0))).fetched
        assert found.records == expected

    scenario()
