"""Sends the requests of transactions in all their versions to one broker, and looks at answers, states and markers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client

IDS = (f"id-{number}" for number in count())
E = ErrorCode
Producer = tuple[str, int, int]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    path: Path = tmp_path_factory.mktemp("transactions")
    with a_broker_in_process(path, broker_id=0, transaction_state_log_num_partitions=4, offsets_topic_num_partitions=4) as made:
        with a_wire_client(made.port) as client:
            topics = [CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in ("t", "u")]
            assert {each.error_code for each in client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7).topics} == {0}
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=["id"])
            eventually(lambda: client.ask(request, 4).coordinators[0].error_code == 0, what="a coordinator")
        yield made


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as made:
        yield made


def a_producer(client: WireClient, *, transactional_id: str | None = None, timeout_ms: int = 60_000) -> Producer:
    name = transactional_id or next(IDS)
    answer = client.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), 5)
    assert answer.error_code == 0
    return name, answer.producer_id, answer.producer_epoch


def add(client: WireClient, producer: Producer, *partitions: int, topic: str = "t", version: int = 3) -> list[int]:
    name, producer_id, epoch = producer
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name, v3_and_below_producer_id=producer_id, v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )  # fmt: skip
    (result,) = client.ask(request, version).results_by_topic_v3_and_below
    assert (result.name, [each.partition_index for each in result.results_by_partition]) == (topic, list(partitions))
    return [each.partition_error_code for each in result.results_by_partition]


def end(client: WireClient, producer: Producer, committed: bool, version: int = 4) -> int:
    name, producer_id, epoch = producer
    request = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=committed)
    return int(client.ask(request, version).error_code)


def state_of(client: WireClient, producer: Producer) -> str:
    (described,) = client.ask(DescribeTransactionsRequest(transactional_ids=[producer[0]]), 0).transaction_states
    return str(described.transaction_state)


def markers_of(broker: InProcessBroker, topic: str, index: int) -> int:
    """The end of the partition's log: only markers are in it."""
    return int(broker.run(lambda: broker.services.data.replica_manager.partitions[topic][index].log.log_end_offset))


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_keeps_its_producer_id_and_gets_another_epoch(client: WireClient, version: int) -> None:
    name = next(IDS)
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    first, second = client.ask(request, version), client.ask(request, version)
    assert (first.error_code, second.error_code) == (0, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)


@pytest.mark.parametrize(("version", "code"), [(3, E.INVALID_PRODUCER_EPOCH), (4, E.PRODUCER_FENCED), (5, E.PRODUCER_FENCED)])
def test_a_replaced_producer_is_refused_in_the_words_of_its_version(client: WireClient, version: int, code: ErrorCode) -> None:
    name, producer_id, epoch = a_producer(client)
    a_producer(client, transactional_id=name)
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000, producer_id=producer_id, producer_epoch=epoch)
    assert client.ask(request, version).error_code == code


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_with_a_marker_in_each_of_its_partitions(
    broker: InProcessBroker, client: WireClient, version: int, committed: bool
) -> None:
    before = [markers_of(broker, "t", index) for index in range(3)]
    producer = a_producer(client)
    assert add(client, producer, 0, 2, version=version) == [0, 0]
    assert state_of(client, producer) == "Ongoing"
    assert end(client, producer, committed, version) == 0
    eventually(lambda: state_of(client, producer) == ("CompleteCommit" if committed else "CompleteAbort"), what="the end")
    assert [markers_of(broker, "t", index) - before[index] for index in range(3)] == [1, 0, 1]
    assert end(client, producer, committed) == 0
    assert end(client, producer, not committed) == E.INVALID_TXN_STATE


@pytest.mark.parametrize(("version", "code"), [(0, E.INVALID_PRODUCER_EPOCH), (1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)])
def test_a_fenced_producer_is_told_so_in_the_words_of_its_version(client: WireClient, version: int, code: ErrorCode) -> None:
    producer = a_producer(client)
    add(client, producer, 0)
    name, producer_id, epoch = producer
    fenced = (name, producer_id, epoch - 1)
    assert add(client, fenced, 1, version=version) == [code]
    assert end(client, fenced, True, version) == code
    request = AddOffsetsToTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch - 1, group_id="g")
    assert client.ask(request, version).error_code == code
    assert state_of(client, producer) == "Ongoing"


def test_an_unknown_id_or_producer_has_no_transaction(client: WireClient) -> None:
    known = a_producer(client)
    for producer in ((next(IDS), 1, 0), (known[0], known[1] + 1, 0)):
        assert end(client, producer, True) == E.INVALID_PRODUCER_ID_MAPPING
        assert add(client, producer, 0) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert end(client, known, True) == E.INVALID_TXN_STATE
    assert end(client, ("", 1, 0), True) == E.INVALID_REQUEST
    assert add(client, ("", 1, 0), 0) == [E.INVALID_REQUEST]


def test_one_partition_that_does_not_exist_keeps_all_out(client: WireClient) -> None:
    producer = a_producer(client)
    assert add(client, producer, 0, 9) == [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert add(client, producer, 0, topic="__consumer_offsets") == [E.TOPIC_AUTHORIZATION_FAILED]
    assert state_of(client, producer) == "Empty"


@pytest.mark.parametrize("version", range(5))
def test_the_partition_of_a_group_becomes_part_of_the_transaction(client: WireClient, version: int) -> None:
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    eventually(lambda: client.ask(find, 4).coordinators[0].error_code == 0, what="the offsets topic")
    name, producer_id, epoch = producer = a_producer(client)
    request = AddOffsetsToTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="g")
    assert client.ask(request, version).error_code == 0
    (described,) = client.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
    assert [each.topic for each in described.topics] == ["__consumer_offsets"]
    assert len(described.topics[0].partitions) == 1
    assert end(client, producer, False) == 0
    eventually(lambda: state_of(client, producer) == "CompleteAbort", what="the end")


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_to_many_transactions_and_verify_others_in_one_request(client: WireClient, version: int) -> None:
    adding, verifying = a_producer(client), a_producer(client)
    add(client, verifying, 1)
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[1, 2])]
    transactions = [
        AddPartitionsToTxnTransaction(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, verify_only=only, topics=topics)
        for (name, producer_id, epoch), only in (
            (adding, False), (verifying, True), ((next(IDS), 1, 0), True), ((verifying[0], verifying[1], 9), True), (("", 1, 0), True),
        )
    ]  # fmt: skip
    answer = client.ask(AddPartitionsToTxnRequest(transactions=transactions), version)
    assert answer.error_code == 0
    assert [each.transactional_id for each in answer.results_by_transaction] == [each.transactional_id for each in transactions]
    results = [each.topic_results[0].results_by_partition for each in answer.results_by_transaction]
    assert [[each.partition_error_code for each in result] for result in results] == [
        [0, 0], [0, E.TRANSACTION_ABORTABLE], [E.INVALID_PRODUCER_ID_MAPPING] * 2, [E.PRODUCER_FENCED] * 2, [E.INVALID_REQUEST] * 2,
    ]  # fmt: skip
    assert state_of(client, adding) == "Ongoing"
    assert client.ask(AddPartitionsToTxnRequest(), version).results_by_transaction == []


def test_a_transaction_is_described_as_it_is(client: WireClient) -> None:
    name, producer_id, epoch = producer = a_producer(client, timeout_ms=45_000)
    add(client, producer, 2, 0)
    add(client, producer, 1, topic="u")
    request = DescribeTransactionsRequest(transactional_ids=[name, "unknown", ""])
    described, unknown, empty = client.ask(request, 0).transaction_states
    assert (described.producer_id, described.producer_epoch, described.transaction_timeout_ms) == (producer_id, epoch, 45_000)
    assert (described.error_code, described.transaction_state) == (0, "Ongoing")
    assert described.transaction_start_time_ms > 0
    assert {each.topic: each.partitions for each in described.topics} == {"t": [0, 2], "u": [1]}
    assert (unknown.error_code, empty.error_code) == (E.TRANSACTIONAL_ID_NOT_FOUND, E.INVALID_REQUEST)


def test_transactions_are_listed_by_state_producer_and_duration(client: WireClient) -> None:
    empty, ongoing = a_producer(client), a_producer(client)
    add(client, ongoing, 0)

    def found(version: int = 1, **filters: object) -> set[str]:
        answer = client.ask(ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return {each.transactional_id for each in answer.transaction_states} & {empty[0], ongoing[0]}

    assert found() == {empty[0], ongoing[0]}
    assert found(version=0, state_filters=["Ongoing"]) == {ongoing[0]}
    assert found(state_filters=["Empty", "Ongoing"]) == {empty[0], ongoing[0]}
    assert found(producer_id_filters=[empty[1]]) == {empty[0]}
    assert found(duration_filter=60_000, producer_id_filters=[ongoing[1]]) == set()
    assert found(state_filters=["Sleeping"]) == set()
    answer = client.ask(ListTransactionsRequest(state_filters=["Sleeping", "Ongoing"]), 0)
    assert answer.unknown_state_filters == ["Sleeping"]


@pytest.mark.parametrize("size", [10_000, 32_000])
def test_a_long_transactional_id_is_one_like_any_other(client: WireClient, size: int) -> None:
    producer = a_producer(client, transactional_id="x" * size)
    assert add(client, producer, 0) == [0]
    assert end(client, producer, True) == 0
    eventually(lambda: state_of(client, producer) == "CompleteCommit", what="the end")


def test_a_new_instance_aborts_the_transaction_of_the_old_one(client: WireClient) -> None:
    producer = a_producer(client)
    add(client, producer, 0)
    request = InitProducerIdRequest(transactional_id=producer[0], transaction_timeout_ms=60_000)
    assert client.ask(request, 5).error_code == E.CONCURRENT_TRANSACTIONS
    eventually(lambda: client.ask(request, 5).error_code == 0, what="another epoch")
    assert end(client, producer, True) == E.PRODUCER_FENCED
    assert state_of(client, producer) == "Empty"


def test_a_restarted_coordinator_knows_its_transactions(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path, broker_id=0, transaction_state_log_num_partitions=2) as first, a_wire_client(first.port) as client:
        topics = [CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
        client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=["id"])
        eventually(lambda: client.ask(find, 4).coordinators[0].error_code == 0, what="a coordinator")
        producers = [a_producer(client) for _ in range(3)]
        assert add(client, producers[1], 0) == [0]
        assert add(client, producers[2], 0) == [0]
        assert end(client, producers[2], True) == 0
        eventually(lambda: state_of(client, producers[2]) == "CompleteCommit", what="the end")
    with a_broker_in_process(tmp_path, broker_id=0) as second, a_wire_client(second.port) as client:
        eventually(lambda: end(client, producers[1], True) == 0, what="the commit")
        eventually(lambda: state_of(client, producers[1]) == "CompleteCommit", what="the end")
        assert [state_of(client, each) for each in producers] == ["Empty", "CompleteCommit", "CompleteCommit"]
        assert markers_of(second, "t", 0) == 2
