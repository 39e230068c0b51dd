"""kafka.controller, kafka.coordinator.group, kafka.server of the broker as a whole, and Ottla's own of its event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.groups.group import GroupState
from broker.metrics.families import Family, Kind, Reading, counter, gauge

if TYPE_CHECKING:
    from broker.metrics.view import View


def _controller(mbean: str, doc: str, read: Callable[[View], float]) -> Family:
    pattern = f"kafka.controller:name={mbean},type=KafkaController"
    return gauge(f"kafka_controller_kafkacontroller_{mbean.lower()}", pattern, doc, read)


def _groups(mbean: str, doc: str, read: Callable[[View], float]) -> Family:
    pattern = f"kafka.coordinator.group:name={mbean},type=GroupMetadataManager"
    return gauge(f"kafka_coordinator_group_groupmetadatamanager_{mbean.lower()}", pattern, doc, read)


def _in_state(state: GroupState) -> Family:
    return _groups(f"NumGroups{state.value}", f"Groups in state {state.value}.", lambda view: view.group_states[state])


def _loop_lag(view: View) -> Reading:
    yield "", view.loop_watch.lag.look()


CLUSTER_FAMILIES: tuple[Family, ...] = (
    _controller(
        "ActiveControllerCount", "1 where this broker is the active controller.", lambda view: int(view.services.controller.is_active)
    ),
    _controller("ActiveBrokerCount", "Brokers that are registered.", lambda view: len(view.services.controller.context.brokers)),
    _controller("GlobalTopicCount", "Topics of the cluster.", lambda view: len(view.services.controller.context.assignments)),
    _controller("GlobalPartitionCount", "Partitions of the cluster.", lambda view: view.controller.partitions),
    _controller("OfflinePartitionsCount", "Partitions without a leader that can serve.", lambda view: view.controller.offline_partitions),
    _controller(
        "PreferredReplicaImbalanceCount",
        "Partitions that another than their first replica leads.",
        lambda view: view.controller.preferred_replica_imbalance,
    ),
    _controller(
        "TopicsToDeleteCount", "Topics that are being deleted.", lambda view: len(view.services.controller.context.topics_to_be_deleted)
    ),
    _controller(
        "TopicsIneligibleToDeleteCount",
        "Topics among them whose deletion has to wait.",
        lambda view: len(view.services.controller.context.topics_ineligible_for_deletion),
    ),
    _controller("ReplicasToDeleteCount", "Replicas of topics that are being deleted.", lambda view: view.controller.replicas_to_delete),
    _controller(
        "ReplicasIneligibleToDeleteCount",
        "Replicas of topics whose deletion has to wait.",
        lambda view: view.controller.replicas_ineligible_to_delete,
    ),
    gauge(
        "kafka_controller_controllereventmanager_eventqueuesize",
        "kafka.controller:name=EventQueueSize,type=ControllerEventManager",
        "Events that the controller has not begun to carry out.",
        lambda view: view.services.controller.event_queue_size,
    ),
    counter(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "kafka.controller:name=UncleanLeaderElectionsPerSec,type=ControllerStats",
        "Replicas that became leader without being in sync.",
        lambda view: view.services.controller.unclean_elections,
    ),
    _groups("NumGroups", "Groups that this broker coordinates.", lambda view: view.groups),
    *(_in_state(state) for state in GroupState),
    _groups("NumOffsets", "Offsets that those groups have committed.", lambda view: view.committed_offsets),
    gauge(
        "kafka_server_kafkaserver_brokerstate",
        "kafka.server:name=BrokerState,type=KafkaServer",
        "1 while the broker starts, 3 while it serves, 7 while it stops.",
        lambda view: view.state(),
    ),
    gauge(
        "kafka_server_metadataloader_currentcontrollerid",
        "kafka.server:name=CurrentControllerId,type=MetadataLoader",
        "The broker that is the active controller; -1 while there is none.",
        lambda view: view.services.controller.active_controller_id,
    ),
    Family(
        "ottla_event_loop_lag_seconds",
        Kind.SUMMARY,
        (),
        "",
        "How late a timer of the event loop fires, looked at ten times a second: how long everybody waited for somebody.",
        _loop_lag,
        1e-6,
    ),
    counter(
        "ottla_event_loop_cpu_seconds_total", "", "Processor time of the event loop's thread.", lambda view: view.loop_watch.busy_seconds
    ),
)
