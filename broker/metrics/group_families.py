"""Declares the metrics of committed offsets and consumer lag, which Apache Kafka leaves to other programs.

The coordinator of a group reports its offsets, `ottla.group.lag.max.series` of them at most. It knows the end of a partition only if it has
a replica. For all partitions of a cluster, the recording rule in `deploy/prometheus` subtracts the offset from the leaders' log end offset,
and names the lag as the usual exporters of consumer lag do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.groups.committed import read_stored
from ottla.broker.groups.consumer.group import CONSUMER, CONSUMER_STATES
from ottla.broker.metrics.families import Family, Kind, Reading, counter, gauge, labels_text

if TYPE_CHECKING:
    from ottla.broker.groups.group import Group
    from ottla.broker.metrics.view import View
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


def _offsets(view: View) -> Reading:
    for each in view.group_offsets:
        yield each.labels, each.offset


def _lags(view: View) -> Reading:
    for each in view.group_offsets:
        if each.lag is not None:
            yield each.labels, each.lag


def _not_shown(view: View) -> int:
    return view.committed_offsets - len(view.group_offsets)


def _of_types(view: View) -> Reading:
    for group_type, states in view.group_states.items():
        yield labels_text(("protocol",), (group_type,)), sum(states.values())


def _in_states(view: View) -> Reading:
    for state in CONSUMER_STATES:
        yield labels_text(("state",), (state.value.lower(),)), view.group_states[CONSUMER][state]


def _rebalances(view: View) -> int:
    return view.services.coordinators.groups.consumer.machine.rebalances


GROUP_FAMILIES = (
    Family(
        "kafka_server_group_coordinator_metrics_group_count",
        Kind.GAUGE,
        ("protocol",),
        "kafka.server:protocol=*,type=group-coordinator-metrics",
        "Groups that this broker coordinates, by the type of the group.",
        _of_types,
    ),
    Family(
        "kafka_server_group_coordinator_metrics_consumer_group_count",
        Kind.GAUGE,
        ("state",),
        "kafka.server:state=*,type=group-coordinator-metrics",
        "Groups of the new protocol that this broker coordinates, by state.",
        _in_states,
    ),
    counter(
        "kafka_server_group_coordinator_metrics_consumer_group_rebalance_count",
        "kafka.server:type=group-coordinator-metrics",
        "Changes of members, subscriptions or topics of groups of the new protocol, each of which begins a rebalance.",
        _rebalances,
    ),
    Family(
        "ottla_group_committed_offset",
        Kind.GAUGE,
        LABELS,
        "",
        "Committed offset of a group that this broker coordinates; `ottla.group.lag.max.series` of them at most.",
        _offsets,
    ),
    Family(
        "ottla_group_lag",
        Kind.GAUGE,
        LABELS,
        "",
        "Records of the partition behind that offset, up to the high watermark; only for partitions with a replica on this broker.",
        _lags,
    ),
    gauge(
        "ottla_group_offsets_not_shown",
        "",
        "Committed offsets of groups that this broker coordinates, beyond `ottla.group.lag.max.series`. With 0, the default, all are.",
        _not_shown,
    ),
)
