"""Reads the values of all metrics for one scrape, and collects in one pass what metrics need of all partitions.

A `View` is made for each scrape. `prepare` and the reading of the families run on the event loop, and pause between elements, so
that a broker with ten thousand partitions keeps serving. The numbers of a scrape are therefore not from one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.families import Family, Found, Value, labels_text
from ottla.broker.metrics.group_families import LABELS as GROUP_LABELS
from ottla.broker.metrics.group_families import GroupOffset, group_offsets
from ottla.config.keys.own import OTTLA_GROUP_LAG_MAX_SERIES
from ottla.config.keys.transactions import TRANSACTION_MAX_TIMEOUT_MS
from ottla.coordination.groups.classic_group import CLASSIC
from ottla.coordination.groups.consumer.group import CONSUMER
from ottla.coordination.groups.group import Group, GroupState
from ottla.coordination.groups.share.group import SHARE
from ottla.coordination.transactions.metadata import TransactionState
from ottla.pauses import pause
from ottla.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.metrics.controller_metrics import ControllerMetrics
    from ottla.broker.metrics.fetch_rates import FetchRates
    from ottla.broker.metrics.histogram import Histogram
    from ottla.broker.metrics.loop_watch import LoopWatch
    from ottla.broker.metrics.request_metrics import RequestMetrics
    from ottla.broker.network.socket_server import SocketServer
    from ottla.broker.request.services import Services
    from ottla.controller.state.context import ControllerContext
    from ottla.coordination.shares.partition import SharePartition
    from ottla.replication.leader.partition import Partition

PARTITION_LABELS: Final = ("topic", "partition")


class BrokerState(IntEnum):
    """Kafka's numbers of a broker's state."""

    NOT_RUNNING = 0
    STARTING = 1
    RUNNING = 3
    SHUTTING_DOWN = 7


@dataclass(slots=True, eq=False)
class ReplicaCounts:
    """ReplicaManager's counts over the partitions of this broker."""

    now_ms: int
    max_transaction_timeout_ms: int
    late_transactions: int = 0
    partitions: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    producer_ids: int = 0
    reassigning: int = 0

    def add(self, partition: Partition) -> None:
        """Count one partition."""
        self.partitions += 1
        producers = partition.log.producer_state.state
        self.producer_ids += len(producers.producers)
        if partition.is_leader:
            in_sync = len(partition.isr)
            self.leaders += 1
            self.under_replicated += in_sync < partition.replication_factor
            self.reassigning += partition.is_reassigning
            self.under_min_isr += in_sync < partition.effective_min_isr
            self.at_min_isr += in_sync == partition.effective_min_isr
            self.late_transactions += producers.has_late_transaction(self.now_ms, self.max_transaction_timeout_ms)


@dataclass(slots=True, eq=False)
class ControllerCounts:
    """KafkaController's counts; all 0 unless this broker is the active controller."""

    partitions: int = 0
    offline_partitions: int = 0
    preferred_replica_imbalance: int = 0
    replicas_to_delete: int = 0
    replicas_ineligible_to_delete: int = 0

    async def count(self, context: ControllerContext) -> None:
        """Count all partitions of the cluster."""
        for topic, of_topic in list(context.assignments.items()):
            for index, assignment in list(of_topic.items()):
                self._add(context, TopicPartition(topic, index), assignment.replicas)
                await pause()

    def _add(self, context: ControllerContext, partition: TopicPartition, replicas: tuple[int, ...]) -> None:
        self.partitions += 1
        if context.is_being_deleted(partition.topic):
            self.replicas_to_delete += len(replicas)
            if partition.topic in context.topics_ineligible_for_deletion:
                self.replicas_ineligible_to_delete += len(replicas)
            return
        leadership = context.leaderships.get(partition)
        if leadership is not None:
            self.offline_partitions += context.has_offline_leader(partition)
            self.preferred_replica_imbalance += leadership.state.leader != replicas[0]


@dataclass(eq=False)
class View:
    """See the module."""

    services: Services
    socket_server: SocketServer
    requests: RequestMetrics
    loop_watch: LoopWatch
    flushes: Histogram
    store_latency: Histogram
    transaction_times: Mapping[TransactionState, Histogram]
    verifications: Histogram
    remote_reads: Histogram
    controller_metrics: ControllerMetrics
    fetch_rates: FetchRates
    state: Callable[[], BrokerState]
    now: Callable[[], float]

    def __post_init__(self) -> None:
        services = self.services
        self.partitions: list[tuple[str, Partition]] = []
        """(labels, partition) of all partitions hosted here."""
        self.share_partitions: list[tuple[str, SharePartition]] = []
        """(labels, state machine) of all share partitions that this broker leads."""
        self.replicas = ReplicaCounts(services.clock.now_ms(), services.config[TRANSACTION_MAX_TIMEOUT_MS])
        self.controller = ControllerCounts()
        self._max_group_offsets = services.config[OTTLA_GROUP_LAG_MAX_SERIES]
        self.groups = 0
        self.group_states: dict[str, dict[GroupState, int]] = {
            group_type: dict.fromkeys(GroupState, 0) for group_type in (CLASSIC, CONSUMER, SHARE)
        }
        """The number of groups, by type and state."""
        self.committed_offsets: int = 0
        self.group_offsets: list[GroupOffset] = []
        """Committed offsets that the metrics show."""
        self.transaction_states = dict.fromkeys(TransactionState, 0)

    async def prepare(self) -> None:
        """Collect what metrics need of every partition."""
        for partition in list(self.services.data.replica_manager):
            await pause()
            self.partitions.append((labels_text(PARTITION_LABELS, partition.topic_partition), partition))
            self.replicas.add(partition)
            partition.count_idle_fetches()
        for led in list(self.services.coordinators.share_leader.led):
            await pause()
            if led.machine is not None:
                place = led.partition.topic_partition
                self.share_partitions.append((labels_text(GROUP_LABELS, (led.key.group_id, *place)), led.machine))
        await self.controller.count(self.services.cluster.controller.context)
        for group in self.services.coordinators.groups.groups:
            await pause()
            self.groups += 1
            states = self.group_states.setdefault(group.group_type, dict.fromkeys(GroupState, 0))
            states[group.state] += 1
            self.committed_offsets += len(group.offsets.committed)
            await self._add_offsets(group)
        for txn in self.services.coordinators.transactions.transactions:
            await pause()
            self.transaction_states[txn.state] += 1

    async def _add_offsets(self, group: Group) -> None:
        """Collect the committed offsets of a group, as long as there are not too many. One group may have all of them."""
        left = self._max_group_offsets - len(self.group_offsets)
        for each in islice(group_offsets(group, self.services.data.replica_manager), left):
            self.group_offsets.append(each)
            await pause()

    async def read(self, families: tuple[Family, ...]) -> list[Found]:
        """The values of all families."""
        found: list[Found] = []
        for family in families:
            labels: list[str] = []
            values: list[Value] = []
            for label, value in family.read(self):
                labels.append(label)
                values.append(value)
                await pause()
            found.append((family, labels, values))
        return found
