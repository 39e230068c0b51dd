"""Readers of committed records at an open transaction: what they wait for, what wakes them, and what their sessions are told."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.records.batch import iter_batches
from ottla.replication.reading.asked_partition import READ_COMMITTED, READ_UNCOMMITTED
from ottla.storage.log.lookups import MOST_ABORTED
from ottla.storage.log.origins import COORDINATOR
from ottla.storage.segment import transaction_index
from ottla.storage.segment.transaction_bounds import GROUP_ENTRIES
from ottla.storage.segment.transaction_index import AbortedTransaction
from tests.support.batches import FIRST_TIMESTAMP, a_run
from tests.support.fetching_follower import turns
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.logs import follow
from tests.support.replicas import TOPIC, state
from tests.support.transactions import a_marker_batch, write_in_transaction

PRODUCER_ID = 7
OTHER_PRODUCER_ID = 8
LATEST = -1


def a_bench(partitions: int = 1, *, followers: int = 0) -> HandlerBench:
    """Broker 0 leads the partitions, each of which has one record outside of transactions."""
    bench = HandlerBench()
    replicas = list(range(followers + 1))
    bench.replicas.say(*(state(isr=replicas, replicas=replicas, index=index) for index in range(partitions)))
    bench.know(**{f"p{index}": 0 for index in range(partitions)})
    for index in range(partitions):
        bench.replicas.append(index=index)
    return bench


def end_transaction(bench: HandlerBench, producer_id: int = PRODUCER_ID, *, commit: bool = True, index: int = 0) -> None:
    partition = bench.replicas.manager.partitions[TOPIC][index]
    partition.append(a_run(a_marker_batch(producer_id, commit=commit)), -1, bench.replicas.clock.now_ms(), COORDINATOR)


def poll(bench: HandlerBench, offset: int, isolation_level: int = READ_COMMITTED, **more: Any) -> Asking:
    return bench.fetch(offset, isolation_level=isolation_level, **more)


def poll_in_session(bench: HandlerBench, session_id: int, epoch: int, isolation_level: int = READ_COMMITTED) -> Asking:
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, session_id=session_id, session_epoch=epoch, isolation_level=isolation_level, topics=[]
    )
    return bench.ask(request, ApiKey.FETCH, 16)


def latest_offset(bench: HandlerBench, isolation_level: int, timestamp: int = LATEST) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])
    (found,) = bench.ask(request, ApiKey.LIST_OFFSETS, 7).response.topics[0].partitions
    assert found.error_code == ErrorCode.NONE
    offset: int = found.offset
    return offset


# -- long polls ----------------------------------------------------------------------------------------------------------


@on_a_loop
async def test_a_long_poll_at_an_open_transaction_is_answered_by_its_marker() -> None:
    bench = a_bench()
    waiting = poll(bench, 1)
    write_in_transaction(bench.replicas, PRODUCER_ID)
    assert waiting.waits, "the record is not committed"
    end_transaction(bench)
    (told,) = waiting.fetched
    assert told.records
    assert (told.high_watermark, told.last_stable_offset, told.aborted_transactions) == (3, 3, [])


@on_a_loop
async def test_a_reader_of_uncommitted_records_gets_the_record_at_once_and_no_aborted_transactions() -> None:
    bench = a_bench()
    waiting = poll(bench, 1, READ_UNCOMMITTED)
    write_in_transaction(bench.replicas, PRODUCER_ID)
    (told,) = waiting.fetched
    assert told.records
    assert (told.high_watermark, told.last_stable_offset, told.aborted_transactions) == (2, 1, None)


@on_a_loop
async def test_an_aborted_transaction_wakes_its_readers_and_is_named_to_them() -> None:
    bench = a_bench()
    write_in_transaction(bench.replicas, PRODUCER_ID)
    waiting = poll(bench, 1)
    end_transaction(bench, commit=False)
    (told,) = waiting.fetched
    assert [(each.producer_id, each.first_offset) for each in told.aborted_transactions or ()] == [(PRODUCER_ID, 1)]


@on_a_loop
async def test_a_fetch_ends_where_too_many_transactions_were_aborted() -> None:
    """It would hold up the event loop to find and to name all of them."""
    bench = a_bench()
    while bench.replicas.append(100).last_offset < 2 * MOST_ABORTED:
        pass
    log = bench.replicas.partition.log
    index = log.segments.active.transaction_index
    for offset in range(log.log_end_offset):
        index.add(AbortedTransaction(PRODUCER_ID, offset, offset, offset + 1))
    index.write_out()
    offset = 0
    named: set[int] = set()
    while offset < log.log_end_offset:
        (told,) = poll(bench, offset, max_bytes=1 << 30, partition_max_bytes=1 << 30).fetched
        assert told.records
        *_, (_, last) = iter_batches(told.records)
        offset = last.next_offset
        aborted = told.aborted_transactions or ()
        assert len(aborted) < MOST_ABORTED + 100
        named.update(each.first_offset for each in aborted)
    assert named == set(range(log.log_end_offset))


@on_a_loop
async def test_a_fetch_within_a_long_transaction_looks_for_aborted_ones_in_several_turns() -> None:
    bench = a_bench()
    while bench.replicas.append(100).last_offset < 3 * GROUP_ENTRIES:
        pass
    log = bench.replicas.partition.log
    index = log.segments.active.transaction_index
    for offset in range(2 * GROUP_ENTRIES):
        index.add(AbortedTransaction(PRODUCER_ID, offset, offset, 0))
    index.add(AbortedTransaction(OTHER_PRODUCER_ID, 0, 2 * GROUP_ENTRIES, 2 * GROUP_ENTRIES + 1))
    index.write_out()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_index, "INLINE_STEPS", 1)
        asking = poll(bench, 0, max_bytes=1, partition_max_bytes=1)
        assert asking.waits
        await turns()
    (told,) = asking.fetched
    assert told.records
    assert [each.producer_id for each in told.aborted_transactions or ()] == [PRODUCER_ID, OTHER_PRODUCER_ID]


@on_a_loop
async def test_a_marker_wakes_readers_only_when_all_replicas_in_sync_have_it() -> None:
    bench = a_bench(followers=2)
    write_in_transaction(bench.replicas, PRODUCER_ID)
    for broker_id in (1, 2):
        bench.replicas.follow(broker_id, 2)
    waiting = poll(bench, 1)
    end_transaction(bench)
    bench.replicas.follow(1, 3)
    assert waiting.waits
    assert latest_offset(bench, READ_COMMITTED) == 1
    bench.replicas.follow(2, 3)
    (told,) = waiting.fetched
    assert (told.high_watermark, told.last_stable_offset) == (3, 3)
    assert latest_offset(bench, READ_COMMITTED) == 3


@on_a_loop
async def test_the_end_of_one_transaction_shows_what_is_below_the_next_open_one() -> None:
    bench = a_bench()
    write_in_transaction(bench.replicas, PRODUCER_ID)
    write_in_transaction(bench.replicas, OTHER_PRODUCER_ID)
    waiting = poll(bench, 1)
    bench.replicas.append()
    end_transaction(bench, OTHER_PRODUCER_ID)
    assert waiting.waits, "the older transaction is open"
    end_transaction(bench, PRODUCER_ID)
    (told,) = waiting.fetched
    assert told.last_stable_offset == told.high_watermark == 6
    write_in_transaction(bench.replicas, OTHER_PRODUCER_ID, sequence=1)
    assert poll(bench, 6).waits


@on_a_loop
async def test_a_reader_in_a_transaction_that_deleted_records_took_away_is_told_so() -> None:
    bench = a_bench()
    write_in_transaction(bench.replicas, PRODUCER_ID)
    waiting = poll(bench, 1)
    bench.replicas.partition.delete_records(2)
    bench.time.advance(600)
    assert waiting.fetched[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert latest_offset(bench, READ_COMMITTED) == 2, "the transaction is open, but nothing of it is left"


@on_a_loop
async def test_a_reader_of_a_follower_is_woken_by_the_last_stable_offset_of_the_follower() -> None:
    leader, bench = a_bench(), HandlerBench()
    bench.replicas.say(state(leader=1, isr=[0, 1], replicas=[0, 1]))
    write_in_transaction(leader.replicas, PRODUCER_ID)
    end_transaction(leader)
    partition, records = bench.replicas.partition, leader.replicas.partition.log.read(0, 1 << 20, 3, True).region
    assert records is not None
    follow(partition.log, records.read(), 0)
    partition.log.update_high_watermark(2)
    waiting = poll(bench, 1, version=12)
    assert waiting.waits, "the follower has the marker, and does not know yet that the others have it"
    partition.move_high_watermark(3)
    (told,) = waiting.fetched
    assert (told.error_code, told.last_stable_offset) == (ErrorCode.NONE, 3)


@on_a_loop
async def test_a_high_watermark_behind_which_the_last_stable_offset_stays_wakes_nobody() -> None:
    bench = a_bench()
    write_in_transaction(bench.replicas, PRODUCER_ID)
    waiting = poll(bench, 1)
    bench.replicas.append(3)
    assert waiting.waits, "nothing is stable that was not before"
    bench.time.advance(600)
    (told,) = waiting.fetched
    assert not told.records
    assert (told.high_watermark, told.last_stable_offset) == (5, 1)


# -- sessions ------------------------------------------------------------------------------------------------------------


@on_a_loop
async def test_a_session_hears_of_the_partition_of_which_the_last_stable_offset_moved_and_of_no_other() -> None:
    bench = a_bench(partitions=2)
    for index in (0, 1):
        write_in_transaction(bench.replicas, PRODUCER_ID, index=index)
    session_id = bench.fetch(1, 1, isolation_level=READ_COMMITTED, session_epoch=0, max_wait_ms=0).response.session_id
    waiting = poll_in_session(bench, session_id, 1)
    await turns()
    assert waiting.waits
    end_transaction(bench, index=1)
    (told,) = waiting.fetched
    assert (told.partition_index, told.last_stable_offset) == (1, 3)
    assert told.records
    end_transaction(bench, index=0)
    told, *_ = poll_in_session(bench, session_id, 2).fetched
    assert (told.partition_index, told.last_stable_offset) == (0, 3)


@on_a_loop
async def test_a_session_hears_of_an_uncommitted_record_by_the_high_watermark_alone() -> None:
    bench = a_bench()
    session_id = poll(bench, 1, session_epoch=0, max_wait_ms=0).response.session_id
    poll_in_session(bench, session_id, 1)
    write_in_transaction(bench.replicas, PRODUCER_ID)
    waiting = poll_in_session(bench, session_id, 2)
    assert waiting.waits
    bench.time.advance(600)
    (told,) = waiting.fetched
    assert (told.high_watermark, told.last_stable_offset, told.records) == (2, 1, b"")


# -- ListOffsets ---------------------------------------------------------------------------------------------------------


@on_a_loop
async def test_the_latest_offset_is_the_last_stable_one_for_readers_of_committed_records() -> None:
    bench = a_bench()
    write_in_transaction(bench.replicas, PRODUCER_ID)
    bench.replicas.append()
    assert [latest_offset(bench, level) for level in (READ_COMMITTED, READ_UNCOMMITTED)] == [1, 3]
    end_transaction(bench)
    assert [latest_offset(bench, level) for level in (READ_COMMITTED, READ_UNCOMMITTED)] == [4, 4]


@on_a_loop
async def test_a_search_by_time_finds_no_record_beyond_the_last_stable_offset() -> None:
    bench = HandlerBench()
    bench.replicas.say(state(isr=[0], replicas=[0]))
    bench.know(p0=0)
    write_in_transaction(bench.replicas, PRODUCER_ID)
    assert [latest_offset(bench, level, FIRST_TIMESTAMP) for level in (READ_COMMITTED, READ_UNCOMMITTED)] == [-1, 0]
    end_transaction(bench)
    assert latest_offset(bench, READ_COMMITTED, FIRST_TIMESTAMP) == 0


@on_a_loop
async def test_a_session_is_told_of_a_high_watermark_behind_which_the_last_stable_offset_stays() -> None:
    bench = a_bench()
    write_in_transaction(bench.replicas, PRODUCER_ID)
    session_id = bench.fetch(1, isolation_level=READ_COMMITTED, session_epoch=0, max_wait_ms=0).response.session_id
    idle = poll_in_session(bench, session_id, 1)
    bench.replicas.append(3)
    assert idle.waits
    bench.time.advance(600)
    (told,) = idle.fetched
    assert (told.high_watermark, told.last_stable_offset) == (5, 1)


@on_a_loop
async def test_a_client_that_turns_to_uncommitted_records_is_woken_by_the_high_watermark() -> None:
    bench = a_bench()
    write_in_transaction(bench.replicas, PRODUCER_ID)
    session_id = bench.fetch(2, isolation_level=READ_COMMITTED, session_epoch=0, max_wait_ms=0).response.session_id
    poll_in_session(bench, session_id, 1)
    bench.time.advance(600)
    waiting = poll_in_session(bench, session_id, 2, READ_UNCOMMITTED)
    assert waiting.waits
    bench.replicas.append()
    (told,) = waiting.fetched
    assert told.records
    assert not bench.replicas.partition.stable_waiters.waiting
