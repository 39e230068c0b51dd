"""Collects the requests that follow from one change of state, for each broker, and sends them together.

Kafka's ControllerBrokerRequestBatch. Every LeaderAndIsr for a partition also adds it to the UpdateMetadata of all
brokers. Each broker receives LeaderAndIsr, UpdateMetadata and StopReplica in this order.

An element that several brokers receive is one object in all of their requests. It is built once, and encoded once
(`ottla.protocol.schema.shared`): the topics and brokers of UpdateMetadata, and the partition states of LeaderAndIsr.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from ottla import pauses
from ottla.controller.state.channels import BrokerSenders, ControlRequest, ControlResponse
from ottla.controller.state.context import ControllerContext, Leadership, LiveBroker
from ottla.controller.znodes.layout import EPOCH_DURING_DELETE, LEADER_DURING_DELETE, NO_LEADER, Endpoint, ReplicaAssignment
from ottla.controller.znodes.pauses import PER_SLICE, Pause, slices
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.protocol.topic_partition import TopicPartition

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

EVERY_BROKER: Final = None
"""Recipients of an UpdateMetadata: all brokers that are alive when the batch is sent."""

OnBrokerResponse: TypeAlias = Callable[[int, ControlRequest, ControlResponse], None]

_Recipients: TypeAlias = frozenset[int] | None
"""Broker ids, or EVERY_BROKER."""


class _Stopped(NamedTuple):
    leader_epoch: int
    delete: bool


class RequestBatch:
    """The collected requests; empty again after `send`."""

    def __init__(
        self,
        controller_id: int,
        context: ControllerContext,
        senders: BrokerSenders,
        inter_broker_listener: str,
        on_response: OnBrokerResponse,
        pause: Pause = pauses.pause,
    ) -> None:
        self._controller_id = controller_id
        self._context = context
        self._senders = senders
        self._inter_broker_listener = inter_broker_listener
        self._on_response = on_response
        self._pause = pause
        self._clear()

    def _clear(self) -> None:
        self._leader_and_isr: defaultdict[str, dict[int, dict[int, LeaderAndIsrPartitionState]]] = defaultdict(dict)
        """By topic, broker and partition: the states of a topic are added one after the other, and are close together in memory."""
        self._update_metadata: defaultdict[_Recipients, dict[TopicPartition, None]] = defaultdict(dict)
        self._stop_replica: defaultdict[int, dict[TopicPartition, _Stopped]] = defaultdict(dict)

    def leader_and_isr(self, brokers: Iterable[int], partition: TopicPartition, leadership: Leadership, *, is_new: bool = False) -> None:
        """Add the partition's state to the LeaderAndIsr of `brokers`, and its metadata to the UpdateMetadata of all
        brokers."""
        assignment = self._context.assignment(partition)
        if assignment is not None:
            state = _leader_state(partition, leadership, assignment, is_new=is_new)
            of_topic = self._leader_and_isr[partition.topic]
            for broker in brokers:
                of_broker = of_topic.get(broker)
                if of_broker is None:
                    of_broker = of_topic[broker] = {}
                before = of_broker.setdefault(partition.partition, state)
                if before is not state:
                    merged = _leader_state(partition, leadership, assignment, is_new=True) if before.is_new else state
                    of_broker[partition.partition] = merged
        self._update_metadata[EVERY_BROKER][partition] = None

    def update_metadata(self, brokers: Iterable[int] | None, partitions: Iterable[TopicPartition]) -> None:
        """Add the live brokers and the metadata of `partitions` to the UpdateMetadata of `brokers`, or of EVERY_BROKER."""
        recipients = EVERY_BROKER if brokers is None else frozenset(brokers)
        self._update_metadata[recipients].update(dict.fromkeys(partitions))

    def stop_replica(self, brokers: Iterable[int], partition: TopicPartition, *, delete: bool) -> None:
        """Add the partition to the StopReplica of `brokers`, with its current leader epoch; with `delete` they delete
        their logs."""
        leadership = self._context.leaderships.get(partition)
        if self._context.is_being_deleted(partition.topic):
            leader_epoch = EPOCH_DURING_DELETE
        else:
            leader_epoch = -1 if leadership is None else leadership.state.leader_epoch
        for broker in brokers:
            of_broker = self._stop_replica[broker]
            before = of_broker.get(partition)
            of_broker[partition] = _Stopped(leader_epoch, delete or (before is not None and before.delete))

    async def send(self) -> None:
        """Pass all requests to the senders, with pauses while they are built. Requests to brokers that are not alive
        are dropped."""
        await self._send_leader_and_isr()
        await self._send_update_metadata()
        for broker_id, stopped in self._stop_replica.items():
            broker = self._context.brokers.get(broker_id)
            if broker is not None:
                self._put(broker_id, await self._stop_replica_request(broker, stopped))
        self._clear()

    async def _send_leader_and_isr(self) -> None:
        topics: defaultdict[int, list[LeaderAndIsrTopicState]] = defaultdict(list)
        leaders: defaultdict[int, dict[int, None]] = defaultdict(dict)
        since_pause = 0
        unsent = self._context.unsent
        for name, of_topic in self._leader_and_isr.items():
            topic_id = self._context.topic_id(name)
            for broker_id, of_broker in of_topic.items():
                states = list(of_broker.values())
                topics[broker_id].append(LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id, partition_states=states))
                of_request = leaders[broker_id]
                for first in range(0, len(states), PER_SLICE):
                    some = states[first : first + PER_SLICE]
                    for state in some:
                        of_request[state.leader] = None
                    if unsent:
                        of_leader = (broker_id, NO_LEADER)
                        unsent.difference_update(TopicPartition(name, each.partition_index) for each in some if each.leader in of_leader)
                    since_pause += len(some)
                    if since_pause >= PER_SLICE:
                        since_pause = 0
                        await self._pause()
        live_leaders: dict[int, LeaderAndIsrLiveLeader] = {}
        for broker_id, topic_states in topics.items():
            broker = self._context.brokers.get(broker_id)
            if broker is not None:
                named = [each for each in leaders[broker_id] if each in self._context.brokers]
                for leader in named:
                    if leader not in live_leaders:
                        live_leaders[leader] = self._live_leader(self._context.brokers[leader])
                request = LeaderAndIsrRequest(
                    controller_id=self._controller_id,
                    controller_epoch=self._context.epoch,
                    broker_epoch=broker.epoch,
                    topic_states=topic_states,
                    live_leaders=[live_leaders[leader] for leader in named],
                )
                self._put(broker_id, request)

    async def _send_update_metadata(self) -> None:
        live_brokers: list[UpdateMetadataBroker] = []
        states: dict[TopicPartition, UpdateMetadataPartitionState] = {}
        # Topic states by all recipients to which a broker belongs; most brokers belong to the same.
        topics: dict[tuple[_Recipients, ...], list[UpdateMetadataTopicState]] = {}
        for broker_id, broker in self._context.brokers.items():
            groups = tuple(each for each in self._update_metadata if each is None or broker_id in each)
            if not groups:
                continue
            live_brokers = live_brokers or [_live_broker(each) for each in self._context.brokers.values()]
            if groups not in topics:
                named = [self._update_metadata[each] for each in groups if self._update_metadata[each]]
                partitions = named[0] if len(named) == 1 else dict.fromkeys(chain.from_iterable(named))
                topics[groups] = await self._topic_states(partitions, states)
            request = UpdateMetadataRequest(
                controller_id=self._controller_id,
                controller_epoch=self._context.epoch,
                broker_epoch=broker.epoch,
                topic_states=topics[groups],
                live_brokers=live_brokers,
            )
            self._put(broker_id, request)

    def _put(self, broker_id: int, request: ControlRequest) -> None:
        self._senders.send(broker_id, request, lambda response: self._on_response(broker_id, request, response))

    def _live_leader(self, broker: LiveBroker) -> LeaderAndIsrLiveLeader:
        endpoints = broker.registration.endpoints
        endpoint: Endpoint | None = next((each for each in endpoints if each.listener == self._inter_broker_listener), None)
        endpoint = endpoint or (endpoints[0] if endpoints else Endpoint("", "PLAINTEXT", "", -1))
        return LeaderAndIsrLiveLeader(broker_id=broker.broker_id, host_name=endpoint.host, port=endpoint.port)

    async def _topic_states(
        self, partitions: Iterable[TopicPartition], states: dict[TopicPartition, UpdateMetadataPartitionState]
    ) -> list[UpdateMetadataTopicState]:
        topics: dict[str, UpdateMetadataTopicState] = {}
        live = self._context.live_brokers
        may_be_again = len(self._update_metadata) > 1
        for some in slices(partitions):
            for partition in some:
                state = states.get(partition)
                if state is None:
                    leadership = self._context.leaderships.get(partition)
                    if leadership is None:  # brokers learn of it when it has a state
                        continue
                    state = self._metadata_of(partition, leadership, live)
                    if may_be_again:
                        states[partition] = state
                topic = topics.get(partition.topic)
                if topic is None:
                    topic_id = self._context.topic_id(partition.topic)
                    topic = UpdateMetadataTopicState(topic_name=partition.topic, topic_id=topic_id, partition_states=[])
                    topics[partition.topic] = topic
                topic.partition_states.append(state)
            await self._pause()
        return list(topics.values())

    def _metadata_of(self, partition: TopicPartition, leadership: Leadership, live: set[int]) -> UpdateMetadataPartitionState:
        context = self._context
        state = leadership.state
        deleting = context.is_being_deleted(partition.topic)
        replicas = context.replicas(partition)
        are_online = not context.offline_replicas and live.issuperset(replicas)
        return UpdateMetadataPartitionState(
            topic_name=partition.topic,
            partition_index=partition.partition,
            controller_epoch=state.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else state.leader,
            leader_epoch=0 if deleting else state.leader_epoch,
            isr=state.isr,
            zk_version=0 if deleting else leadership.partition_epoch,
            replicas=replicas,
            offline_replicas=() if are_online else tuple(each for each in replicas if not context.is_online(each, partition)),
        )

    async def _stop_replica_request(self, broker: LiveBroker, stopped: dict[TopicPartition, _Stopped]) -> StopReplicaRequest:
        topics: dict[str, StopReplicaTopicState] = {}
        for some in slices(stopped.items()):
            for partition, (leader_epoch, delete) in some:
                topic = topics.setdefault(partition.topic, StopReplicaTopicState(topic_name=partition.topic, partition_states=[]))
                topic.partition_states.append(
                    StopReplicaPartitionState(partition_index=partition.partition, leader_epoch=leader_epoch, delete_partition=delete)
                )
            await self._pause()
        return StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker.epoch,
            topic_states=list(topics.values()),
        )


def _leader_state(
    partition: TopicPartition, leadership: Leadership, assignment: ReplicaAssignment, *, is_new: bool
) -> LeaderAndIsrPartitionState:
    state = leadership.state
    return LeaderAndIsrPartitionState(
        topic_name=partition.topic,
        partition_index=partition.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=leadership.partition_epoch,
        replicas=assignment.replicas,
        adding_replicas=assignment.adding_replicas,
        removing_replicas=assignment.removing_replicas,
        is_new=is_new,
        leader_recovery_state=state.leader_recovery_state,
    )


def _live_broker(broker: LiveBroker) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=SECURITY_PROTOCOLS.get(endpoint.security_protocol, 0),
            )
            for endpoint in broker.registration.endpoints
        ],
        rack=broker.registration.rack,
    )
