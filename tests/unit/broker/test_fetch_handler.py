"""Fetch: what is waited for, sessions, limits, transactions, old versions and what is said when it does not work."""

import struct
from typing import Any

import pytest

from ottla.broker.fetching import fetch_sessions
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData, ReplicaState
from ottla.protocol.records.batch import LOG_OVERHEAD
from ottla.replication.ports.replica_selector import select_by_rack
from ottla.replication.reading.asked_partition import READ_COMMITTED
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.log.lookups import aborted_transactions
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.golden_logs import golden_batches
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.logs import follow
from tests.support.replicas import TOPIC, TOPIC_ID, state

UNKNOWN_ID = b"an unknown topic"


def alone(*logs: int, filesystem: FileSystem | None = None, **topic_config: str) -> HandlerBench:
    """Broker 0 leads partitions without other replicas; `logs` is how many batches of two records each of them has."""
    bench = HandlerBench(filesystem, **topic_config)
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in range(len(logs))))
    bench.know(**{f"p{index}": 0 for index in range(len(logs))})
    for index, batches in enumerate(logs):
        for _ in range(batches):
            bench.replicas.append(2, index=index)
    return bench


def offsets(partition: PartitionData) -> list[int]:
    """The base offsets of the batches in an answer."""
    records = bytes(partition.records or b"")
    found = []
    position = 0
    while position < len(records):
        base_offset, length = struct.unpack_from(">qi", records, position)
        found.append(base_offset)
        position += LOG_OVERHEAD + length
    assert position == len(records)
    return found


BATCH = len(a_batch(2))


# -- what is there -------------------------------------------------------------------------------------------------------


@on_a_loop
async def test_what_is_there_is_returned_at_once() -> None:
    bench = alone(3)
    (partition,) = bench.fetch(0).fetched
    assert offsets(partition) == [0, 2, 4]
    assert (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset) == (6, 6, 0)
    assert partition.aborted_transactions is None


@on_a_loop
async def test_a_fetch_inside_a_batch_gets_the_whole_batch() -> None:
    bench = alone(3)
    assert offsets(bench.fetch(3).fetched[0]) == [2, 4]


@on_a_loop
async def test_at_least_one_batch_is_returned_whatever_the_limits() -> None:
    bench = alone(3, 3)
    first, second = bench.fetch(0, 0, partition_max_bytes=1, max_bytes=1).fetched
    assert offsets(first) == [0]
    assert offsets(second) == []


@on_a_loop
async def test_a_partition_without_anything_new_leaves_the_one_batch_to_the_next() -> None:
    bench = alone(3, 3)
    first, second = bench.fetch(6, 0, partition_max_bytes=1, max_bytes=1).fetched
    assert offsets(first) == []
    assert offsets(second) == [0]


@on_a_loop
async def test_the_limits_of_a_partition_and_of_the_request_hold_in_whole_batches() -> None:
    bench = alone(3, 3, 3)
    limited = bench.fetch(0, 0, 0, partition_max_bytes=2 * BATCH + 1, max_bytes=3 * BATCH + 1).fetched
    assert [offsets(each) for each in limited] == [[0, 2], [0], []]
    bench.services.data.fetch_max_bytes = BATCH
    assert [offsets(each) for each in bench.fetch(0, 0, 0).fetched] == [[0], [], []]


@pytest.mark.parametrize("version", [4, 7, 9, 10, 11, 12, 13, 15, 17])
def test_every_version_gets_the_records(version: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = alone(2)
        assert offsets(bench.fetch(0, version=version).fetched[0]) == [0, 2]

    scenario()


# -- what is waited for --------------------------------------------------------------------------------------------------


@on_a_loop
async def test_a_fetch_at_the_end_waits_for_the_next_batch() -> None:
    bench = alone(1)
    asked = bench.fetch(2)
    assert asked.waits
    bench.replicas.append(2)
    assert offsets(asked.fetched[0]) == [2]
    assert bench.services.data.fetch_purgatory.delayed == 0


@on_a_loop
async def test_a_fetch_waits_for_min_bytes() -> None:
    bench = alone(1, 0)
    asked = bench.fetch(2, 0, min_bytes=3 * BATCH)
    bench.replicas.append(2, index=1)
    bench.replicas.append(2, index=0)
    assert asked.waits
    bench.replicas.append(2, index=1)
    assert [offsets(each) for each in asked.fetched] == [[2], [0, 2]]


@on_a_loop
async def test_what_came_while_it_waited_is_returned_when_the_time_is_up() -> None:
    bench = alone(1)
    asked = bench.fetch(2, min_bytes=1000, max_wait_ms=100)
    bench.replicas.append(2)
    bench.time.advance(99)
    assert asked.waits
    bench.time.advance(5)
    assert offsets(asked.fetched[0]) == [2]


@on_a_loop
async def test_the_fetches_of_followers_that_end_with_their_time_are_counted_for_themselves() -> None:
    bench = HandlerBench()
    bench.replicas.say(state())
    bench.know(p0=0)
    bench.fetch(0, max_wait_ms=500, replica_state=ReplicaState(replica_id=1, replica_epoch=-1))
    bench.fetch(0, max_wait_ms=500)
    bench.time.advance(600)
    assert bench.services.data.fetch_purgatory.expirations == 2
    assert bench.replicas.manager.topic_stats.follower_fetch_expirations == 1


@on_a_loop
async def test_a_consumer_that_says_where_it_is_is_sent_to_the_replica_there_and_the_answer_is_not_delayed() -> None:
    bench = HandlerBench()
    bench.replicas.say(state())
    bench.know(p0=0)
    bench.replicas.manager.replica_selector = select_by_rack
    for broker_id in (1, 2):
        bench.replicas.follow(broker_id, 0)
    (partition,) = bench.fetch(0, rack_id="r2").fetched
    assert (partition.preferred_read_replica, partition.records, partition.error_code) == (2, b"", 0)
    assert bench.fetch(0, rack_id="r0").waits
    assert bench.fetch(0, version=11, rack_id="r2").fetched[0].preferred_read_replica == 2


@on_a_loop
async def test_a_fetch_that_may_not_wait_is_answered_with_nothing() -> None:
    bench = alone(1)
    assert offsets(bench.fetch(2, max_wait_ms=0).fetched[0]) == []


@on_a_loop
async def test_what_is_not_committed_is_waited_for() -> None:
    bench = HandlerBench()
    bench.replicas.say(state())
    bench.know(p0=0)
    bench.replicas.append(2, acks=1)
    asked = bench.fetch(0)
    assert asked.waits
    bench.replicas.follow(1, 2)
    assert asked.waits
    bench.replicas.follow(2, 2)
    assert offsets(asked.fetched[0]) == [0]


@on_a_loop
async def test_bytes_that_were_there_and_become_committed_count_for_min_bytes() -> None:
    bench = HandlerBench()
    bench.replicas.say(state())
    bench.know(p0=0)
    for _ in range(3):
        bench.replicas.append(2, acks=1)
    asked = bench.fetch(0, min_bytes=3 * BATCH)
    for broker_id in (1, 2):
        bench.replicas.follow(broker_id, 6)
    assert offsets(asked.fetched[0]) == [0, 2, 4]


@on_a_loop
async def test_a_fetch_is_not_left_waiting_when_old_segments_go_meanwhile() -> None:
    bench = alone(3)
    asked = bench.fetch(6, min_bytes=BATCH)
    log = bench.replicas.partition.log
    log.roll()
    log.increment_log_start_offset(6, "a test")
    log.delete_old_segments(lambda segment, following: True, "a test")
    assert log.size_bytes < 3 * BATCH
    bench.replicas.append(2)
    assert offsets(asked.fetched[0]) == [6]


@on_a_loop
async def test_a_leader_that_is_deposed_answers_consumers_that_may_not_read_from_followers() -> None:
    bench = alone(1)
    old = bench.fetch(2, version=10)
    new = bench.fetch(2)
    bench.replicas.say(state(leader=1, epoch=1, replicas=[0, 1], partition_epoch=1))
    assert old.fetched[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert new.waits


@on_a_loop
async def test_a_debugging_consumer_reads_from_followers_in_the_versions_in_which_others_may() -> None:
    bench = alone(1)
    bench.replicas.say(state(leader=1, epoch=1, replicas=[0, 1], partition_epoch=1))
    errors = {version: bench.fetch(0, version=version, replica_id=-2).fetched[0].error_code for version in (10, 11)}
    assert errors == {10: ErrorCode.NOT_LEADER_OR_FOLLOWER, 11: ErrorCode.NONE}


@on_a_loop
async def test_a_consumer_with_an_epoch_is_fenced_when_the_leader_changes() -> None:
    bench = alone(1)
    asked = bench.fetch(2, leader_epoch=0)
    bench.replicas.say(state(leader=1, epoch=1, replicas=[0, 1], partition_epoch=1))
    (partition,) = asked.fetched
    assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)


@on_a_loop
async def test_a_partition_that_is_deleted_answers_who_waits() -> None:
    bench = alone(1)
    asked = bench.fetch(2)
    bench.know(p0=-2)
    bench.replicas.stop(-2, delete=True)
    assert asked.fetched[0].error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@on_a_loop
async def test_a_client_that_left_is_forgotten() -> None:
    bench = alone(1)
    asked = bench.fetch(2)
    assert asked.pending.on_closed is not None
    asked.pending.on_closed()
    assert bench.services.data.fetch_purgatory.delayed == 0
    bench.replicas.append(2)
    bench.time.advance(1000)
    assert asked.waits


# -- what is wrong -------------------------------------------------------------------------------------------------------


@on_a_loop
async def test_an_offset_out_of_range_is_told_at_once() -> None:
    bench = alone(1, 1)
    bad, good = bench.fetch(3, 2).fetched
    assert (bad.error_code, bad.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert good.error_code == 0


@on_a_loop
async def test_what_the_cluster_does_not_know_is_told_last_and_hurries_nobody() -> None:
    bench = alone(1)
    partitions = [FetchPartition(partition=index, fetch_offset=2, partition_max_bytes=1000) for index in (5, 0)]
    topics = [
        FetchTopic(topic_id=UNKNOWN_ID, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)]),
        FetchTopic(topic_id=TOPIC_ID, partitions=partitions),
    ]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, session_epoch=-1, topics=topics)
    asked = bench.ask(request, ApiKey.FETCH, 16)
    assert asked.waits
    bench.replicas.append(2)
    assert [(each.partition_index, each.error_code) for each in asked.fetched] == [
        (0, ErrorCode.NONE),
        (0, ErrorCode.UNKNOWN_TOPIC_ID),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@on_a_loop
async def test_a_fetch_of_nothing_but_unknown_topics_is_answered_at_once() -> None:
    bench = alone(1)
    assert bench.fetch(0, topic_id=UNKNOWN_ID).fetched[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@on_a_loop
async def test_a_partition_led_elsewhere_names_its_leader_from_version_16_on() -> None:
    bench = HandlerBench()
    bench.know(p0=2)
    for version in (15, 16):
        answer = bench.fetch(0, version=version).response
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.current_leader.leader_id == (2 if version >= 16 else -1)
        assert [node.node_id for node in answer.node_endpoints] == ([2] if version >= 16 else [])


@on_a_loop
async def test_a_disk_that_fails_under_a_fetch_goes_offline() -> None:
    disk = FaultyFileSystem(MemoryFileSystem())
    bench = alone(1, filesystem=disk)
    bench.replicas.partition.log.segments.active.release()
    disk.fails_if = lambda name, path: name == "open" and path.endswith(".log")
    assert bench.fetch(0, version=5).fetched[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert list(bench.replicas.manager) == []
    assert bench.fetch(0, version=6).fetched[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


# -- old versions --------------------------------------------------------------------------------------------------------


@on_a_loop
async def test_a_zstd_topic_is_for_readers_of_version_10_and_later() -> None:
    bench = alone(0, compression_type="zstd")
    assert bench.fetch(0, version=9).fetched[0].error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert bench.fetch(0, version=10).waits


# -- transactions --------------------------------------------------------------------------------------------------------


@on_a_loop
async def test_read_committed_gets_the_aborted_transactions_and_nothing_of_open_ones() -> None:
    bench = alone(0)
    log = bench.replicas.partition.log
    for batch in golden_batches():
        if batch.place.startswith("clean/log-txn-open-0/"):
            follow(log, batch.log[batch.position : batch.position + batch.manifest["size"]], 0)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset < log.log_end_offset
    uncommitted = bench.fetch(0).fetched[0]
    committed = bench.fetch(0, isolation_level=READ_COMMITTED).fetched[0]
    assert offsets(committed) == [each for each in offsets(uncommitted) if each < log.last_stable_offset]
    assert committed.last_stable_offset == log.last_stable_offset
    assert uncommitted.aborted_transactions is None


@on_a_loop
async def test_aborted_transactions_are_those_of_the_recorded_log() -> None:
    bench = alone(0)
    log = bench.replicas.partition.log
    for batch in golden_batches():
        if batch.place.startswith("clean/log-txn-0/"):
            follow(log, batch.log[batch.position : batch.position + batch.manifest["size"]], 0)
    log.update_high_watermark(log.log_end_offset)
    aborted = [(entry.producer_id, entry.first_offset) for entry in aborted_transactions(log, 0, log.log_end_offset)]
    assert aborted
    told: dict[tuple[int, int], None] = {}
    for offset in range(log.log_end_offset):
        answer = bench.fetch(offset, isolation_level=READ_COMMITTED).fetched[0]
        told.update(((each.producer_id, each.first_offset), None) for each in answer.aborted_transactions or ())
    assert list(told) == aborted
    at_end = bench.fetch(log.log_end_offset, isolation_level=READ_COMMITTED, max_wait_ms=0).fetched[0]
    assert at_end.aborted_transactions == []


# -- sessions ------------------------------------------------------------------------------------------------------------


def continued(bench: HandlerBench, session_id: int, epoch: int, *, forgotten: list[int] | None = None, **offsets_by_name: int) -> Any:
    """The next fetch of a session; `p0=4` changes the offset of partition 0."""
    partitions = [
        FetchPartition(partition=int(name[1:]), fetch_offset=offset, partition_max_bytes=1 << 20)
        for name, offset in offsets_by_name.items()
    ]
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=partitions)] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC_ID, partitions=forgotten)] if forgotten else [],
    )
    return bench.ask(request, ApiKey.FETCH, 16)


@on_a_loop
async def test_a_session_names_only_what_changed() -> None:
    bench = alone(1, 1)
    full = bench.fetch(0, 0, session_epoch=0)
    session_id = full.response.session_id
    assert session_id
    assert len(full.fetched) == 2
    asked = continued(bench, session_id, 1, p0=2, p1=2)
    assert asked.waits
    bench.replicas.append(2, index=1)
    assert [(each.partition_index, offsets(each)) for each in asked.fetched] == [(1, [2])]
    assert asked.response.session_id == session_id


@on_a_loop
async def test_a_session_without_news_is_answered_with_nothing_when_the_time_is_up() -> None:
    bench = alone(1)
    session_id = bench.fetch(2, session_epoch=0, max_wait_ms=0).response.session_id
    asked = continued(bench, session_id, 1)
    bench.time.advance(600)
    assert asked.fetched == []


@on_a_loop
async def test_what_returned_data_is_served_last_the_next_time() -> None:
    bench = alone(3, 3)
    session_id = bench.fetch(0, 0, session_epoch=0, partition_max_bytes=1, max_bytes=1).response.session_id
    asked = continued(bench, session_id, 1)
    first = asked.fetched[0].partition_index
    again = continued(bench, session_id, 2)
    assert first != again.fetched[0].partition_index


@on_a_loop
async def test_a_session_that_forgets_its_last_partition_ends() -> None:
    bench = alone(1)
    session_id = bench.fetch(2, session_epoch=0, max_wait_ms=0).response.session_id
    assert continued(bench, session_id, 1, forgotten=[0]).response.session_id == 0
    assert bench.services.data.fetch_sessions.sessions == {}


@on_a_loop
async def test_a_session_that_grows_too_large_ends() -> None:
    """It may grow by partitions that do not exist, so anyone can make it grow."""
    bench = alone(1)
    session_id = bench.fetch(2, session_epoch=0, max_wait_ms=0).response.session_id
    cache = bench.services.data.fetch_sessions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_sessions, "MAX_PARTITIONS", 3)
        assert continued(bench, session_id, 1, p0=0, p7=0, p8=0).response.session_id == session_id
        assert cache.partitions == 3
        refused = continued(bench, session_id, 2, p9=0).response
    assert (refused.error_code, refused.session_id, refused.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])
    assert (cache.sessions, cache.partitions) == ({}, 0)


@on_a_loop
async def test_a_session_learns_of_a_topic_that_was_unknown_at_first() -> None:
    bench = HandlerBench()
    full = bench.fetch(0, 0, session_epoch=0)
    assert {each.error_code for each in full.fetched} == {ErrorCode.UNKNOWN_TOPIC_ID}
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in range(2)))
    bench.know(p0=0, p1=0)
    for index in range(2):
        bench.replicas.append(2, index=index)
    assert [offsets(each) for each in continued(bench, full.response.session_id, 1).fetched] == [[0], [0]]


@on_a_loop
async def test_a_session_of_a_topic_that_was_created_again_is_told_so() -> None:
    bench = alone(1)
    session_id = bench.fetch(2, session_epoch=0, max_wait_ms=0).response.session_id
    bench.replicas.stop(-2, delete=True)
    bench.replicas.say(state(isr=[0], replicas=[0]), topic_id=UNKNOWN_ID)
    bench.replicas.cluster.topics.clear()
    (partition,) = continued(bench, session_id, 1).fetched
    assert partition.error_code == ErrorCode.INCONSISTENT_TOPIC_ID


@on_a_loop
async def test_an_unknown_session_and_a_wrong_epoch_are_errors_of_the_request() -> None:
    bench = alone(1)
    session_id = bench.fetch(0, session_epoch=0).response.session_id
    assert continued(bench, 999, 1).response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert continued(bench, session_id, 7).response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    by_name = bench.fetch(0, version=12, session_id=session_id, session_epoch=1).response
    assert by_name.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@on_a_loop
async def test_a_divergence_that_an_older_version_cannot_be_told_is_an_unsupported_version() -> None:
    bench = alone(1)
    bench.know(p0=0)
    bench.replicas.say(state(isr=[0], replicas=[0], epoch=7))
    asked = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20, current_leader_epoch=-1, last_fetched_epoch=6)
    begun = FetchRequest(max_wait_ms=0, session_epoch=0, topics=[FetchTopic(topic=TOPIC, partitions=[asked])])
    told = bench.ask(begun, ApiKey.FETCH, 12)
    assert told.fetched[0].diverging_epoch.epoch != -1
    again = bench.ask(FetchRequest(max_wait_ms=0, session_id=told.response.session_id, session_epoch=1), ApiKey.FETCH, 11).response
    assert (again.error_code, again.session_id, again.responses) == (ErrorCode.UNSUPPORTED_VERSION, told.response.session_id, [])
