"""WriteTxnMarkers: markers in the log, answers that wait for replicas, and what keeps a marker out."""

from __future__ import annotations

import pytest

from ottla.broker.handlers.transactions.write_txn_markers import handle_write_txn_markers
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.quotas.quota_type import QuotaType
from ottla.broker.request.context import RequestContext
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.protocol.records.batch import TIMESTAMP_TYPE_MASK, crc_is_valid, iter_batches
from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, parse_end_transaction_marker
from ottla.protocol.records.reader import iter_records
from ottla.storage.disk.clock import elapsed_ms
from ottla.storage.log.lookups import aborted_transactions
from tests.support.connections import ClientConnection
from tests.support.grants import Grants
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.logs import a_config
from tests.support.pauses import steps_of
from tests.support.replicas import TOPIC, TOPIC_ID, state
from tests.support.transactions import write_in_transaction

PRODUCER_ID = 7
OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_TOPIC_ID = b"id of the other."
REQUEST_TIMEOUT_MS = 30_000


class Groups:
    """A group coordinator that notes what it is told."""

    def __init__(self) -> None:
        self.completed: list[tuple[int, int, bool]] = []
        self.fails = False

    def on_transaction_completed(self, producer_id: int, index: int, is_commit: bool) -> None:
        self.completed.append((producer_id, index, is_commit))
        if self.fails:
            raise RuntimeError("planted")


def a_bench(*, followed: bool = False) -> HandlerBench:
    """Broker 0 leads partitions 0 and 1 of the topic and of the offsets topic."""
    bench = HandlerBench()
    replicas = [0, 1, 2] if followed else [0]
    for topic in (TOPIC, OFFSETS_TOPIC):
        states = [state(isr=replicas, replicas=replicas, index=index) for index in (0, 1)]
        bench.replicas.say(*states, topic=topic, topic_id=TOPIC_ID if topic == TOPIC else OFFSETS_TOPIC_ID)
    bench.services.coordinators.groups = Groups()  # type: ignore[assignment]  # all that the handler asks of one
    return bench


def a_marker(
    *partitions: int, topic: str = TOPIC, commit: bool = True, producer_id: int = PRODUCER_ID, epoch: int = 0, coordinator_epoch: int = 3
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        coordinator_epoch=coordinator_epoch,
    )


def ask(bench: HandlerBench, *markers: WritableTxnMarker, version: int = 1) -> Asking:
    return bench.ask(WriteTxnMarkersRequest(markers=list(markers)), ApiKey.WRITE_TXN_MARKERS, version)


def codes(asked: Asking) -> dict[tuple[int, str, int], int]:
    return {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in asked.response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


def markers_of(bench: HandlerBench, index: int = 0, topic: str = TOPIC) -> list[tuple[int, int, EndTransactionMarker]]:
    """Producer id, epoch and marker of every control batch of a partition."""
    log = bench.replicas.manager.partitions[topic][index].log
    found = []
    region = log.read(log.log_start_offset, 1 << 20, log.log_end_offset, True).region
    assert region is not None
    data = region.read()
    for position, header in iter_batches(data):
        if header.is_control:
            (record,) = iter_records(data, position, header)
            found.append((header.producer_id, header.producer_epoch, parse_end_transaction_marker(record)))
    return found


@on_a_loop
async def test_a_marker_ends_the_transaction_of_each_partition() -> None:
    bench = a_bench()
    for index in (0, 1):
        write_in_transaction(bench.replicas, PRODUCER_ID, index=index)
    log = bench.replicas.partition.log
    assert log.last_stable_offset == 0
    asked = ask(bench, a_marker(0, 1))
    assert codes(asked) == {(PRODUCER_ID, TOPIC, 0): 0, (PRODUCER_ID, TOPIC, 1): 0}
    for index in (0, 1):
        assert markers_of(bench, index) == [(PRODUCER_ID, 0, EndTransactionMarker(ControlRecordType.COMMIT, 3))]
    assert log.last_stable_offset == log.log_end_offset == 2


@on_a_loop
async def test_an_abort_is_remembered_for_readers() -> None:
    bench = a_bench()
    write_in_transaction(bench.replicas, PRODUCER_ID)
    assert set(codes(ask(bench, a_marker(0, commit=False), version=0)).values()) == {0}
    assert [each[2].type for each in markers_of(bench)] == [ControlRecordType.ABORT]
    (aborted,) = aborted_transactions(bench.replicas.partition.log, 0, 2)
    assert (aborted.producer_id, aborted.first_offset) == (PRODUCER_ID, 0)


@on_a_loop
async def test_the_answer_waits_until_every_replica_in_sync_has_the_marker() -> None:
    bench = a_bench(followed=True)
    write_in_transaction(bench.replicas, PRODUCER_ID)
    asked = ask(bench, a_marker(0))
    bench.replicas.follow(1, 2)
    assert asked.waits
    assert bench.replicas.partition.log.last_stable_offset == 0
    bench.replicas.follow(2, 2)
    assert codes(asked) == {(PRODUCER_ID, TOPIC, 0): 0}
    assert bench.replicas.partition.log.last_stable_offset == 2


@on_a_loop
async def test_followers_that_are_too_slow_are_told_after_the_request_timeout() -> None:
    bench = a_bench(followed=True)
    asked = ask(bench, a_marker(0))
    bench.time.advance(REQUEST_TIMEOUT_MS - 1)
    assert asked.waits
    bench.time.advance(10)
    assert codes(asked) == {(PRODUCER_ID, TOPIC, 0): ErrorCode.REQUEST_TIMED_OUT}


@on_a_loop
async def test_a_leader_that_is_deposed_meanwhile_says_so() -> None:
    bench = a_bench(followed=True)
    asked = ask(bench, a_marker(0))
    bench.replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    assert codes(asked) == {(PRODUCER_ID, TOPIC, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}


@on_a_loop
async def test_a_partition_that_is_not_here_does_not_hold_up_the_others() -> None:
    bench = a_bench()
    answered = codes(ask(bench, a_marker(0, 9), a_marker(0, topic="unknown", producer_id=8)))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answered == {(PRODUCER_ID, TOPIC, 0): 0, (PRODUCER_ID, TOPIC, 9): unknown, (8, "unknown", 0): unknown}


@on_a_loop
async def test_a_follower_refuses_markers() -> None:
    bench = a_bench(followed=True)
    bench.replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    assert codes(ask(bench, a_marker(0))) == {(PRODUCER_ID, TOPIC, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_a_marker_of_an_older_producer_or_coordinator_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = a_bench()
        write_in_transaction(bench.replicas, PRODUCER_ID, epoch=2)
        log = bench.replicas.partition.log
        assert codes(ask(bench, a_marker(0, epoch=1))) == {(PRODUCER_ID, TOPIC, 0): ErrorCode.INVALID_PRODUCER_EPOCH}
        assert log.log_end_offset == 1
        assert set(codes(ask(bench, a_marker(0, epoch=2, coordinator_epoch=5))).values()) == {0}
        fenced = codes(ask(bench, a_marker(0, epoch=2, coordinator_epoch=4)))
        assert fenced == {(PRODUCER_ID, TOPIC, 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED}
        assert log.log_end_offset == 2

    scenario()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert all(each.startswith("a marker from local:1-host:2-0 (client id test) is refused: ") for each in said)


@on_a_loop
async def test_a_marker_that_is_sent_twice_is_written_twice() -> None:
    bench = a_bench()
    write_in_transaction(bench.replicas, PRODUCER_ID)
    for _ in range(2):
        assert set(codes(ask(bench, a_marker(0))).values()) == {0}
    assert len(markers_of(bench)) == 2


@on_a_loop
async def test_partitions_that_stamp_the_same_marker_differently_have_each_their_own() -> None:
    bench = a_bench()
    logs = [bench.replicas.manager.partitions[TOPIC][index].log for index in (0, 1)]
    logs[0].update_config(a_config(message_timestamp_type="LogAppendTime"))
    asked = ask(bench, a_marker(0, 1), a_marker(0, 1, producer_id=8))
    assert set(codes(asked).values()) == {0}
    for log, is_log_append_time in zip(logs, (True, False), strict=True):
        region = log.read(0, 1 << 20, log.log_end_offset, True).region
        assert region is not None
        data = region.read()
        found = [(position, header) for position, header in iter_batches(data)]
        assert [(header.base_offset, header.producer_id) for _, header in found] == [(0, PRODUCER_ID), (1, 8)]
        assert all(crc_is_valid(data, position) for position, _ in found)
        assert {bool(header.attributes & TIMESTAMP_TYPE_MASK) for _, header in found} == {is_log_append_time}


@on_a_loop
async def test_a_partition_named_twice_gets_one_marker() -> None:
    bench = a_bench()
    assert codes(ask(bench, a_marker(0, 0))) == {(PRODUCER_ID, TOPIC, 0): 0}
    assert len(markers_of(bench)) == 1


@on_a_loop
async def test_two_markers_of_one_producer_are_answered_together() -> None:
    bench = a_bench()
    asked = ask(bench, a_marker(0), a_marker(1))
    assert [marker.producer_id for marker in asked.response.markers] == [PRODUCER_ID]
    assert codes(asked) == {(PRODUCER_ID, TOPIC, 0): 0, (PRODUCER_ID, TOPIC, 1): 0}


@on_a_loop
async def test_no_markers_are_answered_at_once() -> None:
    bench = a_bench()
    assert ask(bench).response.markers == []
    assert codes(ask(bench, a_marker())) == {}


@on_a_loop
async def test_the_group_coordinator_hears_of_a_marker_once_it_is_replicated() -> None:
    bench = a_bench(followed=True)
    groups = bench.services.coordinators.groups
    assert isinstance(groups, Groups)
    asked = ask(bench, a_marker(1, topic=OFFSETS_TOPIC, commit=False))
    partition = bench.replicas.manager.partitions[OFFSETS_TOPIC][1]
    assert groups.completed == []
    for broker_id in (1, 2):
        partition.on_follower_fetch(broker_id, 1, 0, elapsed_ms(bench.replicas.clock))
        partition.waiters.notify()
    assert groups.completed == [(PRODUCER_ID, 1, False)]
    assert codes(asked) == {(PRODUCER_ID, OFFSETS_TOPIC, 1): 0}


@on_a_loop
async def test_the_group_coordinator_hears_nothing_of_a_marker_that_was_refused() -> None:
    bench = a_bench(followed=True)
    groups = bench.services.coordinators.groups
    assert isinstance(groups, Groups)
    ask(bench, a_marker(1, topic=OFFSETS_TOPIC))
    bench.time.advance(REQUEST_TIMEOUT_MS + 1)
    assert groups.completed == []


@on_a_loop
async def test_a_failure_of_the_group_coordinator_is_told_so_that_the_marker_is_sent_again() -> None:
    bench = a_bench()
    groups = bench.services.coordinators.groups
    assert isinstance(groups, Groups)
    groups.fails = True
    assert codes(ask(bench, a_marker(0, topic=OFFSETS_TOPIC))) == {(PRODUCER_ID, OFFSETS_TOPIC, 0): ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize("operation", [Operation.ALTER, Operation.CLUSTER_ACTION])
def test_either_operation_on_the_cluster_allows_markers(operation: Operation) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = a_bench()
        bench.connection = ClientConnection(Grants((operation, ResourceType.CLUSTER)))
        assert codes(ask(bench, a_marker(0))) == {(PRODUCER_ID, TOPIC, 0): 0}
        assert (bench.connection.counted, bench.connection.exempted) == ([], 1)

    scenario()


@on_a_loop
async def test_a_client_that_may_not_writes_no_marker() -> None:
    bench = a_bench()
    write_in_transaction(bench.replicas, PRODUCER_ID)
    bench.connection = ClientConnection(Grants((Operation.WRITE, ResourceType.TOPIC)))
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert codes(ask(bench, a_marker(0, 1))) == {(PRODUCER_ID, TOPIC, 0): refused, (PRODUCER_ID, TOPIC, 1): refused}
    assert bench.replicas.partition.log.last_stable_offset == 0
    assert (bench.connection.counted, bench.connection.exempted) == ([(QuotaType.REQUEST, 0)], 0)


@on_a_loop
async def test_each_marker_without_topics_is_a_step() -> None:
    bench = a_bench()
    request = WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=number) for number in range(50)])
    context = RequestContext(ApiKey.WRITE_TXN_MARKERS, 1, 0, None, bench.connection, bench.services, lambda _, __: CLOSE)
    steps, _ = steps_of(handle_write_txn_markers(request, context))
    assert steps >= 50
