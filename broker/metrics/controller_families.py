"""Declares the families of kafka.controller: the state of the cluster, the controller's events, and its queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.broker.metrics.controller_metrics import STATES, state_of
from ottla.broker.metrics.families import MILLISECONDS, Family, Kind, Value, counter, gauge, labelled, timer

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View


def _controller(mbean: str, doc: str, read: Callable[[View], float]) -> Family:
    pattern = f"kafka.controller:name={mbean},type=KafkaController"
    return gauge(f"kafka_controller_kafkacontroller_{mbean.lower()}", pattern, doc, read)


def _stage(name: str) -> Family:
    mbean = f"{name}RateAndTimeMs"
    pattern = f"kafka.controller:name={mbean},type=ControllerStats"
    doc = f"Time that it took {STATES[name].work}."
    return timer(
        f"kafka_controller_controllerstats_{mbean.lower()}", pattern, doc, lambda view: view.controller_metrics.timers[name].look()
    )


def _request_queue_times(view: View) -> Iterator[tuple[Sequence[object], Value]]:
    queues = view.controller_metrics.request_queues
    for broker_id in view.services.cluster.controller.request_queue_sizes:
        if broker_id in queues:
            yield (broker_id,), queues[broker_id].look()


CONTROLLER_FAMILIES: tuple[Family, ...] = (
    _controller(
        "ActiveControllerCount",
        "1 where this broker is the active controller.",
        lambda view: int(view.services.cluster.controller.is_active),
    ),
    _controller("ActiveBrokerCount", "Brokers that are registered.", lambda view: len(view.services.cluster.controller.context.brokers)),
    _controller("GlobalTopicCount", "Topics of the cluster.", lambda view: len(view.services.cluster.controller.context.assignments)),
    _controller("GlobalPartitionCount", "Partitions of the cluster.", lambda view: view.controller.partitions),
    _controller("OfflinePartitionsCount", "Partitions without a leader that can serve.", lambda view: view.controller.offline_partitions),
    _controller(
        "PreferredReplicaImbalanceCount",
        "Partitions whose leader is not their preferred replica.",
        lambda view: view.controller.preferred_replica_imbalance,
    ),
    _controller(
        "TopicsToDeleteCount",
        "Topics that are being deleted.",
        lambda view: len(view.services.cluster.controller.context.topics_to_be_deleted),
    ),
    _controller(
        "TopicsIneligibleToDeleteCount",
        "Topics among them whose deletion is suspended.",
        lambda view: len(view.services.cluster.controller.context.topics_ineligible_for_deletion),
    ),
    _controller("ReplicasToDeleteCount", "Replicas of topics that are being deleted.", lambda view: view.controller.replicas_to_delete),
    _controller(
        "ReplicasIneligibleToDeleteCount",
        "Replicas of topics whose deletion is suspended.",
        lambda view: view.controller.replicas_ineligible_to_delete,
    ),
    _controller(
        "ControllerState",
        "The controller's current work: 0 none; " + ", ".join(f"{state.number} {name}" for name, state in STATES.items()) + ".",
        lambda view: state_of(view.services.cluster.controller.current_event),
    ),
    *(_stage(name) for name in STATES),
    gauge(
        "kafka_controller_controllereventmanager_eventqueuesize",
        "kafka.controller:name=EventQueueSize,type=ControllerEventManager",
        "Events that wait in the controller's queue.",
        lambda view: view.services.cluster.controller.event_queue_size,
    ),
    counter(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "kafka.controller:name=UncleanLeaderElectionsPerSec,type=ControllerStats",
        "Replicas that became leader without being in sync.",
        lambda view: view.services.cluster.controller.unclean_elections,
    ),
    timer(
        "kafka_controller_controllereventmanager_eventqueuetimems",
        "kafka.controller:name=EventQueueTimeMs,type=ControllerEventManager",
        "Time that events waited in the controller's queue.",
        lambda view: view.controller_metrics.event_queue.look(),
    ),
    gauge(
        "kafka_controller_controllerchannelmanager_totalqueuesize",
        "kafka.controller:name=TotalQueueSize,type=ControllerChannelManager",
        "Requests of the controller that wait to be sent to brokers.",
        lambda view: sum(view.services.cluster.controller.request_queue_sizes.values()),
    ),
    labelled(
        "kafka_controller_controllerchannelmanager_queuesize",
        Kind.GAUGE,
        ("broker_id",),
        "kafka.controller:broker-id=*,name=QueueSize,type=ControllerChannelManager",
        "The same by broker.",
        lambda view: (((broker_id,), size) for broker_id, size in view.services.cluster.controller.request_queue_sizes.items()),
    ),
    labelled(
        "kafka_controller_controllerchannelmanager_requestrateandqueuetimems",
        Kind.SUMMARY,
        ("broker_id",),
        "kafka.controller:broker-id=*,name=RequestRateAndQueueTimeMs,type=ControllerChannelManager",
        "Time that such requests waited.",
        _request_queue_times,
        MILLISECONDS,
    ),
)
