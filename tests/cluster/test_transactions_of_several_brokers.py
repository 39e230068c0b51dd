"""Ends transactions whose partitions are led by other brokers than their coordinator, and hands the coordinator over in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.support.in_process_broker import InProcessBroker
from tests.support.several_brokers import create_topic, leaders_of, three_brokers, until
from tests.support.wire_client import a_wire_client

pytestmark = pytest.mark.cluster

Brokers = list[InProcessBroker]
NAME = "id"


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with three_brokers(tmp_path, transaction_state_log_num_partitions=3, transaction_state_log_replication_factor=3) as started:
        create_topic(started[0], "t", partitions=6, replication_factor=3)
        until(lambda: all(len(leaders_of(broker, "t")) == 6 for broker in started))
        yield started


def ask(broker: InProcessBroker, request: object, version: int) -> object:
    with a_wire_client(broker.port) as client:
        return client.ask(request, version)  # type: ignore[arg-type]  # a message


def coordinator_of(brokers: Brokers) -> InProcessBroker:
    """The broker that coordinates the transactional id, once there is one."""
    found: list[int] = []

    def is_known() -> bool:
        (coordinator,) = ask(brokers[0], FindCoordinatorRequest(key_type=1, coordinator_keys=[NAME]), 4).coordinators
        found.append(coordinator.node_id)
        return coordinator.error_code == 0 and any(each.services.broker_id == coordinator.node_id for each in brokers)

    until(is_known)
    return next(each for each in brokers if each.services.broker_id == found[-1])


def a_producer(coordinator: InProcessBroker) -> InitProducerIdResponse:
    answers: list[InitProducerIdResponse] = []

    def has_one() -> bool:
        answers.append(ask(coordinator, InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000), 5))
        return answers[-1].error_code == 0

    until(has_one)
    return answers[-1]


def add_all(coordinator: InProcessBroker, producer: InitProducerIdResponse) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME, v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(range(6)))],
    )  # fmt: skip
    (topic,) = ask(coordinator, request, 3).results_by_topic_v3_and_below
    assert {each.partition_error_code for each in topic.results_by_partition} == {0}


def end(coordinator: InProcessBroker, producer: InitProducerIdResponse) -> int:
    request = EndTxnRequest(
        transactional_id=NAME, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, committed=True
    )  # fmt: skip
    return ask(coordinator, request, 4).error_code


def state_of(coordinator: InProcessBroker) -> str:
    (described,) = ask(coordinator, DescribeTransactionsRequest(transactional_ids=[NAME]), 0).transaction_states
    return described.transaction_state


def markers(broker: InProcessBroker) -> list[int]:
    """The ends of this broker's logs of the topic, which hold markers only."""
    return broker.run(lambda: [broker.services.data.replica_manager.partitions["t"][index].log.log_end_offset for index in range(6)])


def test_every_leader_gets_its_markers(brokers: Brokers) -> None:
    assert set(leaders_of(brokers[0], "t").values()) == {0, 1, 2}
    coordinator = coordinator_of(brokers)
    producer = a_producer(coordinator)
    add_all(coordinator, producer)
    assert end(coordinator, producer) == 0
    until(lambda: state_of(coordinator) == "CompleteCommit")
    until(lambda: all(markers(broker) == [1] * 6 for broker in brokers))


def test_the_next_coordinator_finishes_what_the_last_one_began(brokers: Brokers) -> None:
    coordinator = coordinator_of(brokers)
    producer = a_producer(coordinator)
    add_all(coordinator, producer)
    brokers.remove(coordinator)
    coordinator.stop()
    coordinator = coordinator_of(brokers)
    until(lambda: end(coordinator, producer) == 0)
    until(lambda: state_of(coordinator) == "CompleteCommit")
    until(lambda: all(markers(broker) == [1] * 6 for broker in brokers))
