"""Three brokers, one metadata file: what each says of the cluster, who may be asked what, and how one leaves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ottla.config.topic import MAX_MESSAGE_BYTES, RETENTION_MS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition import AlterPartitionRequest
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.stop_replica import StopReplicaRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition
from tests.support.admin_requests import BROKER, OK, SET, TOPIC, change, delete
from tests.support.in_process_broker import InProcessBroker
from tests.support.several_brokers import create_topic, leaders_of, metadata_of, start_broker, three_brokers, until
from tests.support.wire_client import a_wire_client

pytestmark = pytest.mark.cluster

Brokers = list[InProcessBroker]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with three_brokers(tmp_path) as started:
        yield started


def ask(broker: InProcessBroker, request: Message, version: int) -> Message:
    with a_wire_client(broker.port) as client:
        response = client.ask(request, version)
    assert isinstance(response, Message)
    return response


def isr_of(broker: InProcessBroker, topic: str) -> set[int]:
    """Who is in sync with every partition; nobody as long as the broker knows of none."""
    in_sync = [{*each.isr_nodes} for each in metadata_of(broker, topic).topics[0].partitions]
    return set.intersection(*in_sync) if in_sync else set()


def test_every_broker_says_the_same_of_the_cluster(brokers: Brokers) -> None:
    create_topic(brokers[0], "orders", partitions=6)
    until(lambda: all(len(leaders_of(broker, "orders")) == 6 for broker in brokers))
    said = [metadata_of(broker, "orders") for broker in brokers]
    assert said[0].topics == said[1].topics == said[2].topics
    assert {each.controller_id for each in said} == {0}
    assert [sorted((node.node_id, node.port) for node in each.brokers) for each in said] == [
        [(0, brokers[0].port), (1, brokers[1].port), (2, brokers[2].port)]
    ] * 3
    described = [ask(broker, DescribeClusterRequest(), 1) for broker in brokers]
    assert {each.controller_id for each in described} == {0}  # type: ignore[attr-defined]  # DescribeCluster has it
    assert sorted(leaders_of(brokers[0], "orders").values()) == [0, 0, 1, 1, 2, 2]


def test_a_topic_is_created_again_as_soon_as_it_is_deleted_and_every_broker_has_the_new_one(brokers: Brokers) -> None:
    with a_wire_client(brokers[0].port) as client:
        for partitions in range(1, 11):
            create_topic(brokers[0], "orders", partitions)
            for broker in brokers:
                until(partial(lambda broker, number: len(leaders_of(broker, "orders")) == number, broker, partitions))
            assert [each.error_code for each in delete(client, "orders", timeout_ms=90_000)] == [ErrorCode.NONE]


def test_a_change_of_a_configuration_is_in_force_on_every_broker(brokers: Brokers) -> None:
    create_topic(brokers[0], "orders", partitions=3)
    until(lambda: all(leaders_of(broker, "orders") for broker in brokers))
    with a_wire_client(brokers[2].port) as client:
        assert change(client, TOPIC, "orders", ("max.message.bytes", SET, "12345")) == OK
        assert change(client, BROKER, "", ("log.retention.ms", SET, "77777")) == OK

    def in_force(broker: InProcessBroker) -> set[tuple[object, object]]:
        return broker.run(
            lambda: {
                (each.log.config[MAX_MESSAGE_BYTES], each.log.config[RETENTION_MS])
                for each in broker.services.data.replica_manager
                if each.topic_partition.topic == "orders"
            }
        )

    until(lambda: [in_force(broker) for broker in brokers] == [{(12345, 77777)}] * 3)


def test_a_broker_that_is_not_the_controller_says_so(brokers: Brokers) -> None:
    other = brokers[1]
    created = ask(other, CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]), 7)
    deleted = ask(other, DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=bytes(16))]), 6)
    grown = ask(other, CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)]), 3)
    assert [created.topics[0].error_code, deleted.responses[0].error_code, grown.results[0].error_code] == [41] * 3  # type: ignore[attr-defined]  # each its own class
    assert ask(other, AlterPartitionRequest(broker_id=2), 3).error_code == ErrorCode.NOT_CONTROLLER  # type: ignore[attr-defined]  # has one
    stale = ask(other, ControlledShutdownRequest(broker_id=2, broker_epoch=0), 3)
    assert stale.error_code == ErrorCode.STALE_CONTROLLER_EPOCH  # type: ignore[attr-defined]  # has one


@pytest.mark.parametrize(("request_class", "version"), [(LeaderAndIsrRequest, 7), (StopReplicaRequest, 4), (UpdateMetadataRequest, 8)])
def test_old_controllers_and_requests_to_an_earlier_life_are_refused(
    brokers: Brokers, request_class: type[LeaderAndIsrRequest], version: int
) -> None:
    broker = brokers[2]
    epoch = broker.services.cluster.controller.broker_epoch
    codes = [
        ask(broker, request_class(controller_id=0, controller_epoch=controller_epoch, broker_epoch=broker_epoch), version).error_code  # type: ignore[attr-defined]  # all three have one
        for controller_epoch, broker_epoch in [(0, epoch), (1, epoch - 1), (1, epoch)]
    ]
    assert codes == [ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE]


def test_producer_ids_of_different_brokers_come_from_different_blocks(brokers: Brokers) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    ids = []
    for broker in brokers:
        answered = ask(broker, request, 4)
        assert answered.error_code == 0  # type: ignore[attr-defined]  # has one
        ids.append(answered.producer_id // 1000)  # type: ignore[attr-defined]  # has one
    assert sorted(ids) == [0, 1, 2]


def test_a_topic_that_metadata_creates_is_to_be_asked_for_again_whichever_broker_was_asked(tmp_path: Path) -> None:
    with three_brokers(tmp_path, auto_create_topics_enable="true") as brokers:
        answers = [
            ask(broker, MetadataRequest(topics=[MetadataRequestTopic(name=f"new-{at}")], allow_auto_topic_creation=True), 12)
            for at, broker in enumerate(brokers)
        ]
        assert [answer.topics[0].error_code for answer in answers] == [ErrorCode.LEADER_NOT_AVAILABLE] * 3  # type: ignore[attr-defined]  # each its own class


def test_a_topic_and_a_coordinator_are_created_through_any_broker(tmp_path: Path) -> None:
    with three_brokers(tmp_path, auto_create_topics_enable="true", offsets_topic_num_partitions=3) as brokers:
        ask(brokers[2], MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True), 12)
        until(lambda: all(leaders_of(broker, "new").get(0, -1) >= 0 for broker in brokers))
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])

        def coordinators() -> list[int]:
            found = [ask(broker, find, 4).coordinators[0] for broker in brokers]  # type: ignore[attr-defined]  # version 4 has them
            return [each.node_id if each.error_code == 0 else -1 for each in found]

        until(lambda: -1 not in coordinators())
        assert len(set(coordinators())) == 1


def test_a_leader_that_stops_hands_over_before_it_goes(brokers: Brokers) -> None:
    create_topic(brokers[0], "orders", partitions=6)
    until(lambda: all(isr_of(broker, "orders") == {0, 1, 2} for broker in brokers))
    leaving = brokers.pop()
    leaving.stop()
    # Nobody waited for a session to end: who asks right now is told who leads.
    assert all(set(leaders_of(broker, "orders").values()) == {0, 1} for broker in brokers)
    assert all(isr_of(broker, "orders") == {0, 1} for broker in brokers)


def test_a_controller_that_stops_hands_over_and_another_takes_its_place(brokers: Brokers) -> None:
    create_topic(brokers[0], "orders", partitions=6)
    until(lambda: all(isr_of(broker, "orders") == {0, 1, 2} for broker in brokers))
    brokers.pop(0).stop()
    assert all(set(leaders_of(broker, "orders").values()) == {1, 2} for broker in brokers)
    until(lambda: all(metadata_of(broker).controller_id in (1, 2) for broker in brokers))
    controller = next(broker for broker in brokers if broker.services.cluster.controller.is_active)
    until(lambda: set(controller.services.cluster.controller.context.brokers) == {1, 2})
    create_topic(controller, "more", replication_factor=2)


def test_a_broker_that_comes_back_follows_again(brokers: Brokers, tmp_path: Path) -> None:
    create_topic(brokers[0], "orders", partitions=3)
    until(lambda: isr_of(brokers[0], "orders") == {0, 1, 2})
    brokers.pop().stop()
    brokers.append(start_broker(tmp_path, 2))
    until(lambda: all(isr_of(broker, "orders") == {0, 1, 2} for broker in brokers))


def test_a_broker_whose_session_expired_registers_again_under_another_epoch(brokers: Brokers) -> None:
    create_topic(brokers[0], "orders", partitions=3)
    until(lambda: isr_of(brokers[0], "orders") == {0, 1, 2})
    broker = brokers[2]
    until(
        lambda: len(broker.services.data.replica_manager.partitions.get("orders", ())) == 3
    )  # an ISR holds them before they have heard of it
    before = broker.services.cluster.controller.broker_epoch
    broker.run(broker.services.cluster.controller._on_session_expired)
    assert broker.services.cluster.controller.broker_epoch >= before
    assert broker.services.data.replica_manager.partition_or_raise("orders", 0).topic_partition == TopicPartition("orders", 0)


@pytest.mark.soak
def test_others_are_answered_while_hundreds_of_partitions_come(brokers: Brokers) -> None:
    topic = CreatableTopic(name="many", num_partitions=500, replication_factor=3)
    with a_wire_client(brokers[0].port) as client, a_wire_client(brokers[1].port) as bystander:
        created = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=0), 7).topics[0]
        assert created.error_code == ErrorCode.REQUEST_TIMED_OUT  # it does not wait for them
        answered = []

        def are_there() -> bool:
            answered.append(bystander.ask(MetadataRequest(topics=[]), 12).controller_id)
            return all(len(broker.services.data.replica_manager.partitions.get("many", ())) == 500 for broker in brokers)

        until(are_there)
    assert set(answered) == {0}
    assert len(answered) > 5
