"""Declares the metrics of groups, of share partitions at their leaders, and of committed offsets and consumer lag.

Apache Kafka leaves offsets and lag to other programs.
The coordinator of a group reports its offsets, `ottla.group.lag.max.series` of them at most. It knows the end of a partition only if it has
a replica. For all partitions of a cluster, the recording rule in `deploy/prometheus` subtracts the offset from the leaders' log end offset,
and names the lag as the usual exporters of consumer lag do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.metrics.families import Family, Kind, counter, gauge, labelled, labels_text, load_times
from ottla.coordination.groups.committed import read_stored
from ottla.coordination.groups.consumer.group import CONSUMER, CONSUMER_STATES
from ottla.coordination.groups.share.group import SHARE, SHARE_STATES
from ottla.coordination.shares.record_states import AcknowledgeType

if TYPE_CHECKING:
    from ottla.coordination.groups.coordinator import GroupCoordinator
    from ottla.coordination.groups.group import Group, GroupState
    from ottla.coordination.shares.partition import SharePartition
    from ottla.replication.control.replica_manager import ReplicaManager

LABELS = ("group", "topic", "partition")


class GroupOffset(NamedTuple):
    """A committed offset. `lag` is None where this broker has no replica of the partition."""

    labels: str
    offset: int
    lag: int | None


def group_offsets(group: Group, replicas: ReplicaManager) -> Iterator[GroupOffset]:
    """The committed offsets of a group, which may change meanwhile."""
    for topic, partitions in list(group.offsets.committed.by_topic.items()):
        for index, stored in list(partitions.items()):
            offset = read_stored(stored)[0]
            partition = replicas.partition(topic, index)
            lag = None if partition is None or not partition.is_online else max(0, partition.log.high_watermark - offset)
            yield GroupOffset(labels_text(LABELS, (group.group_id, topic, index)), offset, lag)


def _groups_by_state(name: str, kind_of_groups: str, group_type: str, states: Iterable[GroupState]) -> Family:
    return labelled(
        f"kafka_server_group_coordinator_metrics_{name}_count",
        Kind.GAUGE,
        ("state",),
        "kafka.server:state=*,type=group-coordinator-metrics",
        f"{kind_of_groups} that this broker coordinates, by state.",
        lambda view: (((state.value.lower(),), view.group_states[group_type][state]) for state in states),
    )


def _rebalances(name: str, kind_of_groups: str, read: Callable[[GroupCoordinator], int]) -> Family:
    return counter(
        f"kafka_server_group_coordinator_metrics_{name}_rebalance_count",
        "kafka.server:type=group-coordinator-metrics",
        f"Changes of members, subscriptions or topics of {kind_of_groups}, each of which begins a rebalance.",
        lambda view: read(view.services.coordinators.groups),
    )


GROUP_FAMILIES = (
    gauge(
        "ottla_group_metadata_bytes",
        "",
        "Memory for the members of all groups of this broker, at most `ottla.all.groups.max.metadata.bytes`.",
        lambda view: view.services.coordinators.groups.groups.metadata.taken,
    ),
    labelled(
        "kafka_server_group_coordinator_metrics_group_count",
        Kind.GAUGE,
        ("protocol",),
        "kafka.server:protocol=*,type=group-coordinator-metrics",
        "Groups that this broker coordinates, by the type of the group.",
        lambda view: (((group_type,), sum(states.values())) for group_type, states in view.group_states.items()),
    ),
    _groups_by_state("consumer_group", "Groups of the new protocol", CONSUMER, CONSUMER_STATES),
    _rebalances("consumer_group", "groups of the new protocol", lambda groups: groups.consumer.machine.rebalances),
    _groups_by_state("share_group", "Share groups", SHARE, SHARE_STATES),
    _rebalances("share_group", "share groups", lambda groups: groups.share.machine.rebalances),
    Family(
        "ottla_group_committed_offset",
        Kind.GAUGE,
        LABELS,
        "",
        "Committed offset of a group that this broker coordinates; `ottla.group.lag.max.series` of them at most.",
        lambda view: ((each.labels, each.offset) for each in view.group_offsets),
    ),
    Family(
        "ottla_group_lag",
        Kind.GAUGE,
        LABELS,
        "",
        "Records of the partition behind that offset, up to the high watermark; only for partitions with a replica on this broker.",
        lambda view: ((each.labels, each.lag) for each in view.group_offsets if each.lag is not None),
    ),
    gauge(
        "ottla_group_offsets_not_shown",
        "",
        "Committed offsets of groups that this broker coordinates, beyond `ottla.group.lag.max.series`. With 0, the default, all are.",
        lambda view: view.committed_offsets - len(view.group_offsets),
    ),
)

_COORDINATOR: Final = "kafka.server:type=share-coordinator-metrics"
_TYPES: Final = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)


def _of_share_partition(name: str, mbean: str, kind: Kind, doc: str, value: Callable[[SharePartition], int]) -> Family:
    name = f"kafka_server_sharepartitionmetrics_{name}"
    pattern = f"kafka.server:group=*,name={mbean},partition=*,topic=*,type=SharePartitionMetrics"
    return Family(name, kind, LABELS, pattern, doc, lambda view: ((labels, value(machine)) for labels, machine in view.share_partitions))


SHARE_FAMILIES: tuple[Family, ...] = (
    labelled(
        "kafka_server_sharegroupmetrics_recordacknowledgements_total",
        Kind.COUNTER,
        ("ackType",),
        "kafka.server:ackType=*,name=RecordAcknowledgementsPerSec,type=ShareGroupMetrics",
        "Records that members of share groups have acknowledged at this broker, by the type of the acknowledgement.",
        lambda view: (((kind.name.capitalize(),), view.services.coordinators.share_leader.acknowledged[kind]) for kind in _TYPES),
    ),
    _of_share_partition(
        "inflightmessagecount",
        "InFlightMessageCount",
        Kind.GAUGE,
        "Records of a share partition led here between its start and the last one that was acquired.",
        lambda machine: machine.end_offset - machine.start_offset,
    ),
    _of_share_partition(
        "inflightbatchcount",
        "InFlightBatchCount",
        Kind.GAUGE,
        "Ranges of these records with the same state.",
        lambda machine: len(machine.runs),
    ),
    _of_share_partition(
        "acquisitionlocktimeout_total",
        "AcquisitionLockTimeoutPerSec",
        Kind.COUNTER,
        "Records whose lock ended before they were acknowledged.",
        lambda machine: machine.ended_locks,
    ),
    counter(
        "kafka_server_share_coordinator_metrics_write_total",
        _COORDINATOR,
        "Writes of the state of share partitions that this broker coordinates.",
        lambda view: view.services.coordinators.shares.writes,
    ),
    *load_times("share-coordinator-metrics", "__share_group_state", lambda view: view.services.coordinators.shares.load_times.recent()),
)
