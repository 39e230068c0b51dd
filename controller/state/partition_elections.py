"""Elects leaders of partitions, writes the new states, and adds the resulting requests to a batch.

Kafka's PartitionStateMachine and ReplicaStateMachine, as far as they write states or send requests. Called by the
controller's events, which send the batch.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.replication import INTER_BROKER_PROTOCOL_VERSION
from ottla.config.schema.metadata_version import is_at_least
from ottla.config.topic import UNCLEAN_LEADER_ELECTION_ENABLE, TopicConfig
from ottla.controller.errors import NoNode, StoreError
from ottla.controller.state.context import ControllerContext, Replica
from ottla.controller.state.election import (
    elect_for_controlled_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
    first_state,
    with_next_epoch,
)
from ottla.controller.state.partition_states import PartitionStates
from ottla.controller.state.request_batch import EVERY_BROKER, RequestBatch
from ottla.controller.store.metadata_store import Get, MetadataStore, data_and_stat
from ottla.controller.znodes.changes import decode_config
from ottla.controller.znodes.layout import RECOVERED, PartitionState, config_path
from ottla.controller.znodes.pauses import Pause, slices
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

Elect = Callable[[TopicPartition, PartitionState], PartitionState | None]

Refused = dict[TopicPartition, StoreError]
"""The partitions whose states the store refuses to write, and why."""


class PartitionElections:
    """Elections over one controller's context."""

    def __init__(
        self, store: MetadataStore, context: ControllerContext, states: PartitionStates, config: BrokerConfig, pause: Pause
    ) -> None:
        self._store = store
        self._context = context
        self._states = states
        self._config = config
        self._pause = pause
        self._knows_recovery = is_at_least(config[INTER_BROKER_PROTOCOL_VERSION], "3.2-IV0")
        """Whether all brokers know the leader recovery state after an unclean election."""
        self._without_replica: set[TopicPartition] = set()
        """New partitions without an electable replica that were logged; every change of the brokers checks them again."""
        self.unclean_elections = 0
        """Elections of leaders that were not in sync, with a possible loss of records."""

    async def bring_up(self, partitions: Iterable[TopicPartition], batch: RequestBatch) -> None:
        """Elect the first leaders of new partitions. One without a live replica has no state until a broker with a
        replica starts."""
        context = self._context
        states = {}
        for some in slices(partitions):
            for partition in some:
                state = first_state(context.replicas(partition), self._online(partition), context.epoch)
                if state is None:
                    if partition not in self._without_replica:
                        logger.warning(
                            "%s has no live replica among %s; it has no leader yet", partition, list(context.replicas(partition))
                        )
                    self._without_replica.add(partition)
                else:
                    self._without_replica.discard(partition)
                    states[partition] = state
            await self._pause()
        created = set(await self._states.create(states)) if states else set()
        for some in slices(states):
            for partition in some:
                leadership = context.leaderships.get(partition)
                if leadership is not None:
                    live = leadership.state.isr if partition in created else self._live_replicas(partition)
                    batch.leader_and_isr(live, partition, leadership, is_new=partition in created)
            await self._pause()

    async def elect_where_needed(self, batch: RequestBatch) -> list[TopicPartition]:
        """Elect first leaders of partitions without a state, and new leaders of offline partitions. Returns the latter
        that got one."""
        context = self._context
        new: list[TopicPartition] = []
        for topic, assignments in context.assignments.items():
            if context.is_being_deleted(topic):
                continue
            for some in slices(assignments):
                new += [TopicPartition(topic, index) for index in some if (topic, index) not in context.leaderships]
                await self._pause()
        self._without_replica.intersection_update(new)  # without those of topics that were deleted
        await self.bring_up(new, batch)
        return await self.elect_offline(await self.offline_partitions(), batch)

    async def offline_partitions(self) -> list[TopicPartition]:
        """The partitions that had a leader which cannot serve now, without those of topics that are being deleted."""
        context = self._context
        offline: list[TopicPartition] = []
        for some in slices(context.leaderships.items()):
            offline += [
                partition
                for partition, (state, _) in some
                if not context.is_online(state.leader, partition) and not context.is_being_deleted(partition.topic)
            ]
            await self._pause()
        return offline

    async def elect_offline(
        self, partitions: Sequence[TopicPartition], batch: RequestBatch, *, unclean: bool | None = None
    ) -> list[TopicPartition]:
        """Elect new leaders of partitions whose leader is gone; with `unclean` None the topics' configurations decide."""
        unclean_topics: set[str] = set()
        await self._states.refresh(partitions)
        if unclean is None:
            without: set[str] = set()
            for some in slices(partitions):
                without.update(each.topic for each in some if not self._has_live_member(each))
                await self._pause()
            unclean_topics = await self._unclean_topics(without)

        def elect(partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            allowed = partition.topic in unclean_topics if unclean is None else unclean
            chosen = elect_offline(state, self._context.replicas(partition), self._online(partition), unclean=allowed)
            if chosen is not None and chosen.leader not in state.isr:
                out_of_sync.add(partition)
                if not self._knows_recovery:
                    return chosen._replace(leader_recovery_state=RECOVERED)
            return chosen

        out_of_sync: set[TopicPartition] = set()
        elected = await self._elect(partitions, elect, batch)
        self.unclean_elections += len(out_of_sync.intersection(elected))
        return elected

    async def elect_preferred(self, partitions: Sequence[TopicPartition], batch: RequestBatch) -> list[TopicPartition]:
        """Elect the preferred replicas where they are in sync and alive."""
        return await self._elect(
            partitions,
            lambda partition, state: elect_preferred(state, self._context.replicas(partition), self._online(partition)),
            batch,
        )

    async def elect_reassigned(self, partitions: Sequence[TopicPartition], batch: RequestBatch, refused: Refused) -> list[TopicPartition]:
        """Elect the first replica in sync and alive of partitions whose leader is gone or is no longer a replica. Adds what the store
        refuses to `refused`."""
        return await self._elect(
            partitions,
            lambda partition, state: elect_reassigned(state, self._context.replicas(partition), self._online(partition)),
            batch,
            refused,
        )

    async def raise_epochs(
        self, partitions: Sequence[TopicPartition], batch: RequestBatch, refused: Refused | None = None
    ) -> list[TopicPartition]:
        """Raise the leader epochs and send the new lists of replicas to all replicas; those being added are marked as
        new. The partitions that the store refuses are added to `refused`. Without it they are tried again later."""
        raised = await self._write_next(partitions, lambda _, state: with_next_epoch(state), refused)
        for some in slices(raised):
            for partition in some:
                assignment, leadership = self._context.assignment(partition), self._context.leaderships[partition]
                assert assignment is not None
                batch.leader_and_isr(assignment.origin_replicas, partition, leadership)
                batch.leader_and_isr(assignment.adding_replicas, partition, leadership, is_new=True)
            await self._pause()
        return raised

    async def elect_for_shutdown(self, partitions: Sequence[TopicPartition], batch: RequestBatch) -> list[TopicPartition]:
        """Move leadership away from brokers that are shutting down; they leave the ISR in the same step."""
        context = self._context

        def elect(partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            online = self._online(partition, include_shutting_down=True)
            return elect_for_controlled_shutdown(state, context.replicas(partition), online, context.shutting_down)

        return await self._elect(partitions, elect, batch)

    async def take_offline(self, replicas: Iterable[Replica], batch: RequestBatch) -> Refused:
        """Remove replicas that cannot serve from the ISRs, and send them StopReplica if their broker is still
        connected. Returns the partitions whose ISR the store refused to change."""
        refused: Refused = {}
        by_broker: dict[int, list[TopicPartition]] = {}
        for replica in replicas:
            by_broker.setdefault(replica.broker_id, []).append(replica.partition)
        for broker_id, partitions in by_broker.items():
            for some in slices(partitions):
                for partition in some:
                    batch.stop_replica((broker_id,), partition, delete=False)
                await self._pause()
            refused.update(await self._states.remove_from_isr(broker_id, partitions))
            for some in slices(partitions):
                for partition in some:
                    # Also if it was not in the ISR: the change is then that the replica is offline.
                    if partition in self._context.leaderships:
                        others = [each for each in self._context.replicas(partition) if each != broker_id]
                        batch.leader_and_isr(others, partition, self._context.leaderships[partition])
                    else:
                        batch.update_metadata(EVERY_BROKER, (partition,))
                await self._pause()
        return refused

    async def send_states(self, placements: Iterable[tuple[TopicPartition, Sequence[int]]], batch: RequestBatch) -> None:
        """Send LeaderAndIsr for the replicas of these partitions on these brokers, after a broker or a controller has
        started."""
        for some in slices(placements):
            for partition, brokers in some:
                leadership = self._context.leaderships.get(partition)
                if leadership is not None and brokers:
                    batch.leader_and_isr(brokers, partition, leadership)
            await self._pause()

    async def _elect(
        self, partitions: Sequence[TopicPartition], elect: Elect, batch: RequestBatch, refused: Refused | None = None
    ) -> list[TopicPartition]:
        elected = await self._write_next(partitions, elect, refused)
        for some in slices(elected):
            for partition in some:
                batch.leader_and_isr(self._live_replicas(partition), partition, self._context.leaderships[partition])
            await self._pause()
        return elected

    async def _write_next(self, partitions: Sequence[TopicPartition], elect: Elect, refused: Refused | None = None) -> list[TopicPartition]:
        """Write the states that `elect` returns, again for partitions that another client wrote first; returns the
        partitions that changed.

        The states that the store refuses are added to `refused`, for changes of several steps. Without it they are tried again later."""
        elected: list[TopicPartition] = []
        remaining = list(partitions)
        await self._states.refresh(remaining)
        while remaining:
            states = {}
            for some in slices(remaining):
                for partition in some:
                    leadership = self._context.leaderships.get(partition)
                    state = None if leadership is None else elect(partition, leadership.state)
                    if state is not None:
                        states[partition] = state
                await self._pause()
            if not states:
                break
            remaining, refused_now = await self._states.update(states)
            if refused is not None:
                refused.update(refused_now)
            elif refused_now:
                self._states.on_refused()
            unchanged = {*remaining, *refused_now}
            elected += [partition for partition in states if partition not in unchanged]
        return elected

    async def _unclean_topics(self, topics: set[str]) -> set[str]:
        """Those of the topics whose configuration allows an unclean election."""
        names = sorted(topics)
        outcomes = await self._store.pipeline([Get(config_path("topics", name)) for name in names]) if names else []
        allowed = set()
        for name, outcome in zip(names, outcomes, strict=True):
            try:
                overrides = {} if isinstance(outcome, NoNode) else decode_config(config_path("topics", name), data_and_stat(outcome)[0])
                config = TopicConfig(overrides, self._config)
            except (ConfigError, MalformedZNode) as error:
                logger.error("topic %s keeps its offline partitions: its configuration is invalid (%s); repair it", name, error)
                continue
            if config[UNCLEAN_LEADER_ELECTION_ENABLE]:
                allowed.add(name)
        return allowed

    def _has_live_member(self, partition: TopicPartition) -> bool:
        leadership = self._context.leaderships.get(partition)
        return leadership is not None and any(self._context.is_online(member, partition) for member in leadership.state.isr)

    def _live_replicas(self, partition: TopicPartition) -> list[int]:
        return [each for each in self._context.replicas(partition) if self._context.is_online(each, partition, include_shutting_down=True)]

    def _online(self, partition: TopicPartition, *, include_shutting_down: bool = False) -> Callable[[int], bool]:
        return lambda broker_id: self._context.is_online(broker_id, partition, include_shutting_down=include_shutting_down)
