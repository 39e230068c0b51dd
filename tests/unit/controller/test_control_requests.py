"""The requests to brokers equal, byte for byte, what Apache Kafka's controller sent in the same situation."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ottla.controller.state.channels import ControlRequest
from ottla.controller.state.context import ControllerContext, Leadership, LiveBroker, Replica
from ottla.controller.state.request_batch import RequestBatch
from ottla.controller.znodes.layout import BrokerRegistration, Endpoint, PartitionState, ReplicaAssignment
from ottla.controller.znodes.pauses import PER_SLICE
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.stop_replica import StopReplicaRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.topic_partition import TopicPartition

INTERBROKER = Path(__file__).parents[2] / "golden" / "wire" / "interbroker.jsonl"
PROTOCOLS = {0: "PLAINTEXT"}

R = TypeVar("R", LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest)


class Collector:
    """Stands in for BrokerSenders."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, ControlRequest]] = []

    def send(self, broker_id: int, request: ControlRequest, _: object) -> None:
        self.sent.append((broker_id, request))


def recorded(request_class: type[R], api_name: str, version: int) -> list[tuple[bytes, R]]:
    """The bodies of the recorded requests, as bytes and decoded."""
    found = []
    for line in INTERBROKER.read_text().splitlines():
        exchange = json.loads(line)
        if exchange["api_name"] == api_name:
            assert exchange["version"] == version
            frame = bytes.fromhex(exchange["request_hex"])
            body = frame[10 + int.from_bytes(frame[8:10], "big") + 1 :]
            found.append((body, request_class.decode(body, version)[0]))
    assert len(found) > 5
    return found


def context_of(request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest, destination: int) -> ControllerContext:
    context = ControllerContext()
    context.epoch = request.controller_epoch
    context.brokers[destination] = LiveBroker(destination, BrokerRegistration((), None, 0), request.broker_epoch)
    return context


def sent(context: ControllerContext, controller_id: int, fill: Callable[[RequestBatch], None]) -> dict[type[Any], ControlRequest]:
    collector = Collector()
    batch = RequestBatch(controller_id, context, collector, "INTERNAL", lambda *_: None)  # type: ignore[arg-type]  # a stand-in
    fill(batch)
    asyncio.run(batch.send())
    return {type(request): request for _, request in collector.sent}


def test_leader_and_isr() -> None:
    for body, request in recorded(LeaderAndIsrRequest, "LeaderAndIsr", 7):
        destination = 100  # not among the leaders, so that its own end points do not matter
        context = context_of(request, destination)
        for leader in request.live_leaders:
            endpoints = (Endpoint("EXTERNAL", "PLAINTEXT", "other", 1), Endpoint("INTERNAL", "PLAINTEXT", leader.host_name, leader.port))
            context.brokers[leader.broker_id] = LiveBroker(leader.broker_id, BrokerRegistration(endpoints, None, 0), 1)
        told = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                assignment = ReplicaAssignment(tuple(state.replicas), tuple(state.adding_replicas), tuple(state.removing_replicas))
                context.add_topic(topic.topic_name, topic.topic_id, [(state.partition_index, assignment)])
                partition_state = PartitionState(
                    state.leader, tuple(state.isr), state.leader_epoch, state.controller_epoch, state.leader_recovery_state
                )
                told.append((partition, Leadership(partition_state, state.partition_epoch), state.is_new))

        def fill(batch: RequestBatch, told: list[tuple[TopicPartition, Leadership, bool]] = told, to: int = destination) -> None:
            for partition, leadership, is_new in told:
                batch.leader_and_isr((to,), partition, leadership, is_new=is_new)

        built = sent(context, request.controller_id, fill)[LeaderAndIsrRequest]
        assert isinstance(built, LeaderAndIsrRequest)
        built.live_leaders.sort(key=lambda leader: [each.broker_id for each in request.live_leaders].index(leader.broker_id))
        assert built.encode(7) == body


def test_update_metadata() -> None:
    for body, request in recorded(UpdateMetadataRequest, "UpdateMetadata", 8):
        destination = request.live_brokers[0].id
        context = ControllerContext()
        context.epoch = request.controller_epoch
        for broker in request.live_brokers:
            endpoints = tuple(Endpoint(each.listener, PROTOCOLS[each.security_protocol], each.host, each.port) for each in broker.endpoints)
            registration = BrokerRegistration(endpoints, broker.rack, 0)
            context.brokers[broker.id] = LiveBroker(broker.id, registration, request.broker_epoch)
        partitions = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                partitions.append(partition)
                context.add_topic(topic.topic_name, topic.topic_id, [(state.partition_index, ReplicaAssignment(tuple(state.replicas)))])
                if state.leader == -2:
                    context.topics_to_be_deleted.add(topic.topic_name)
                partition_state = PartitionState(max(state.leader, -1), tuple(state.isr), state.leader_epoch, state.controller_epoch)
                context.leaderships[partition] = Leadership(partition_state, state.zk_version)
                context.offline_replicas |= {Replica(partition, each) for each in state.offline_replicas if each in context.brokers}

        def fill(batch: RequestBatch, partitions: list[TopicPartition] = partitions, to: int = destination) -> None:
            batch.update_metadata((to,), partitions)

        assert sent(context, request.controller_id, fill)[UpdateMetadataRequest].encode(8) == body


def test_stop_replica() -> None:
    for body, request in recorded(StopReplicaRequest, "StopReplica", 4):
        destination = 0
        context = context_of(request, destination)
        told = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                told.append((partition, state.delete_partition))
                if state.leader_epoch == -2:
                    context.topics_to_be_deleted.add(topic.topic_name)
                elif state.leader_epoch >= 0:
                    context.leaderships[partition] = Leadership(PartitionState(0, (0,), state.leader_epoch, 1), 0)

        def fill(batch: RequestBatch, told: list[tuple[TopicPartition, bool]] = told, to: int = destination) -> None:
            for partition, delete in told:
                batch.stop_replica((to,), partition, delete=delete)

        assert sent(context, request.controller_id, fill)[StopReplicaRequest].encode(4) == body


def test_the_states_of_a_large_topic_are_gathered_with_pauses() -> None:
    slices, taken = 10, 0

    async def pause() -> None:
        nonlocal taken
        taken += 1

    context = ControllerContext()
    context.brokers[0] = LiveBroker(0, BrokerRegistration((), None, 0), 1)
    indexes = range(slices * PER_SLICE)
    context.add_topic("t", None, [(index, ReplicaAssignment((0,))) for index in indexes])
    collector = Collector()
    batch = RequestBatch(0, context, collector, "INTERNAL", lambda *_: None, pause)  # type: ignore[arg-type]  # a stand-in
    for index in indexes:
        batch.leader_and_isr((0,), TopicPartition("t", index), Leadership(PartitionState(0, (0,), 0, 1), 0))
    asyncio.run(batch.send())
    assert taken == 2 * slices  # for LeaderAndIsr, and for UpdateMetadata
    first = collector.sent[0][1]
    assert isinstance(first, LeaderAndIsrRequest)
    assert [each.partition_index for each in first.topic_states[0].partition_states] == [*indexes]
