"""Makes an elected broker the active controller: reads all state from the store, sets watches, and sends the state to
every broker.

Kafka's onControllerFailover. The reads take no more round trips than the dependencies between them require.
"""

import logging

from ottla.controller.admin.features import are_versioned, feature_body
from ottla.controller.errors import NodeExists, NoNode, SessionExpired, StoreError
from ottla.controller.events.broker_changes import BrokerChanges
from ottla.controller.events.leader_elections import LeaderElections
from ottla.controller.events.reassignment import Reassignments
from ottla.controller.events.topic_changes import TopicChanges
from ottla.controller.state.context import Replica
from ottla.controller.state.core import ControllerCore
from ottla.controller.state.request_batch import EVERY_BROKER
from ottla.controller.store.metadata_store import Children, Create, Delete, Get, Result, SetData, data_and_stat, names
from ottla.controller.znodes.changes import decode_partitions
from ottla.controller.znodes.layout import (
    BROKER_IDS,
    DELETE_TOPICS,
    FEATURE,
    ISR_CHANGE_NOTIFICATION,
    LOG_DIR_EVENT_NOTIFICATION,
    TOPICS,
    FeatureNode,
    decode_feature,
    encode_feature,
)
from ottla.controller.znodes.pauses import slices
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class Failover:
    """The first work of an active controller."""

    def __init__(
        self,
        core: ControllerCore,
        brokers: BrokerChanges,
        topics: TopicChanges,
        elections: LeaderElections,
        reassignments: Reassignments,
    ) -> None:
        self._core = core
        self._brokers = brokers
        self._topics = topics
        self._elections = elections
        self._reassignments = reassignments

    async def take_over(self) -> None:
        """Raises ControllerMoved when another broker was elected meanwhile, StoreError when the store fails."""
        core, context = self._core, self._core.context
        feature, broker_ids, topics, deletions, log_dir_events, isr_changes = await core.store.pipeline(
            [
                Get(FEATURE),
                Children(BROKER_IDS, core.watch("BrokerChange", self._brokers.on_broker_change)),
                Children(TOPICS, core.watch("TopicChange", self._topics.on_topic_change)),
                Children(DELETE_TOPICS, core.watch("TopicDeletion", self._topics.on_topic_deletion)),
                Children(LOG_DIR_EVENT_NOTIFICATION, core.watch("LogDirEventNotification", self._brokers.on_log_dir_event)),
                Children(ISR_CHANGE_NOTIFICATION, core.watch("IsrChangeNotification", self._on_isr_change)),
            ]
        )
        await self._set_up_features(feature)
        stale = [f"{LOG_DIR_EVENT_NOTIFICATION}/{name}" for name in names(log_dir_events)]
        stale += [f"{ISR_CHANGE_NOTIFICATION}/{name}" for name in names(isr_changes)]
        if stale:
            await core.states.write_or_raise([Delete(path) for path in stale], ignoring=(NoNode,))
        context.brokers.update(await self._brokers.read_brokers(names(broker_ids)))
        assignments = await self._topics.read_topics(names(topics))
        with core.while_many(sum(len(each.partitions) for each in assignments.values())):
            for topic, assignment in assignments.items():
                context.add_topic(topic, assignment.topic_id, assignment.partitions.items())
                await core.pause()
            await core.states.read(context.partitions)
            for broker in context.brokers.values():
                core.senders.add(broker.broker_id, broker)
            await self._topics.take_deletions(set(names(deletions)))
            await core.deletion.halt_where_replicas_are_offline()
            await self._send_states()
        for step in (self._reassignments.resume, self._reassignments.on_order, self._elections.on_preferred_election_order):
            try:
                await step()
            except SessionExpired:
                raise
            except StoreError as error:  # a write that is refused must not keep the cluster without a controller
                logger.error("reassignments or elections that were ordered do not go on for now: %s", error)
                core.states.on_refused()

    async def _set_up_features(self, found: Result | StoreError) -> None:
        """Write /feature. inter.broker.protocol.version decides whether features are versioned."""
        is_enabled, version = are_versioned(self._core.config), feature_body(self._core.config)
        if isinstance(found, NoNode):
            write: Create | SetData = Create(FEATURE, encode_feature(FeatureNode({}, is_enabled, version)))
        else:
            try:
                before = decode_feature(data_and_stat(found)[0])
            except MalformedZNode as error:  # left for the operator
                logger.error("the features of the cluster cannot be read and stay as they are: %s", error)
                return
            wanted = FeatureNode(before.features if is_enabled and before.is_enabled else {}, is_enabled, version)
            if wanted == before:
                return
            write = SetData(FEATURE, encode_feature(wanted))
        (outcome,) = await self._core.store.pipeline([write])
        if isinstance(outcome, StoreError) and not isinstance(outcome, NodeExists):
            raise outcome

    async def _send_states(self) -> None:
        core, context = self._core, self._core.context
        await core.send_metadata_to_all()
        batch = core.batch()
        # No broker has answered yet, so no replica on a live broker is known to be offline.
        live = context.live_brokers
        for states in slices(context.leaderships.items()):
            for partition, leadership in states:
                brokers = [each for each in context.replicas(partition) if each in live]
                if brokers:
                    batch.leader_and_isr(brokers, partition, leadership)
            await core.pause()
        await batch.send()
        gone: list[Replica] = []
        for topic, assignments in context.assignments.items():
            if context.is_being_deleted(topic):
                continue
            for some in slices(assignments.items()):
                gone += [
                    Replica(TopicPartition(topic, index), each)
                    for index, assignment in some
                    if not live.issuperset(assignment.replicas)
                    for each in assignment.replicas
                    if each not in live
                ]
                await core.pause()
        # Elections first, as when a broker dies: the leader of a partition must not leave the ISR before another leader
        # was elected.
        await core.elections.elect_where_needed(batch)
        await core.elections.take_offline(gone, batch)
        await batch.send()
        await core.deletion.resume(batch)
        await batch.send()

    async def _on_isr_change(self) -> None:
        """Children of /isr_change_notification: an old broker or an operator changed states. Read them and send them to
        the brokers."""
        core = self._core
        (outcome,) = await core.store.pipeline(
            [Children(ISR_CHANGE_NOTIFICATION, core.watch("IsrChangeNotification", self._on_isr_change))]
        )
        paths = [f"{ISR_CHANGE_NOTIFICATION}/{name}" for name in names(outcome)]
        if not paths:
            return
        partitions = set()
        for path, found in zip(paths, await core.store.pipeline([Get(path) for path in paths]), strict=True):
            if isinstance(found, NoNode):
                continue
            try:
                partitions.update(decode_partitions(path, data_and_stat(found)[0]))
            except MalformedZNode as error:  # deleted with the others, which would wait behind it
                logger.error("a notification of changed partition states is ignored: %s", error)
        known = sorted(partition for partition in partitions if core.context.assignment(partition) is not None)
        await core.states.read(known)
        self._reassignments.on_isr_changed(known)
        batch = core.batch()
        batch.update_metadata(EVERY_BROKER, known)
        await batch.send()
        await core.states.write_or_raise([Delete(path) for path in paths], ignoring=(NoNode,))
