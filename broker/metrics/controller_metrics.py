"""Measures the controller: the duration of its events (Kafka's ControllerStats) and the waits of events and requests in
their queues.

`Controller.measure` passes each event and request to a `ControllerMetrics`. They are rare, so each is measured.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.metrics.histogram import Histogram

IDLE: Final = 0

STATES: Final = {
    "ControllerChange": 1,
    "LeaderElection": 2,
    "TopicChange": 3,
    "TopicDeletion": 4,
    "PartitionReassignment": 5,
    "AutoLeaderBalance": 6,
    "ManualLeaderBalance": 7,
    "ControlledShutdown": 8,
    "IsrChange": 9,
    "LeaderAndIsrResponseReceived": 10,
    "LogDirChange": 11,
    "UncleanLeaderElectionEnable": 13,
    "TopicUncleanLeaderElectionEnable": 14,
}
"""Kafka's timers of the controller's work, and the number of the controller's state during it."""

_TIMER_OF: Final = {
    "Startup": "ControllerChange",
    "ControllerChange": "ControllerChange",
    "Expire": "ControllerChange",
    "BrokerChange": "LeaderElection",
    "BrokerModifications": "LeaderElection",
    "TopicChange": "TopicChange",
    "PartitionModifications": "TopicChange",
    "TopicDeletion": "TopicDeletion",
    "TopicDeletionStopReplicaResponse": "TopicDeletion",
    "ApiPartitionReassignment": "PartitionReassignment",
    "ZkPartitionReassignment": "PartitionReassignment",
    "PartitionReassignmentIsrChange": "PartitionReassignment",
    "AutoPreferredReplicaLeaderElection": "AutoLeaderBalance",
    "PreferredReplicaElection": "ManualLeaderBalance",
    "ReplicaLeaderElection": "ManualLeaderBalance",
    "ControlledShutdown": "ControlledShutdown",
    "AlterPartition": "IsrChange",
    "IsrChangeNotification": "IsrChange",
    "LeaderAndIsrResponse": "LeaderAndIsrResponseReceived",
    "LogDirEventNotification": "LogDirChange",
    "UncleanLeaderElectionEnable": "UncleanLeaderElectionEnable",
    "TopicUncleanLeaderElectionEnable": "TopicUncleanLeaderElectionEnable",
}


def state_of(event: str | None) -> int:
    """Kafka's number of the controller's state."""
    timer = None if event is None else _TIMER_OF.get(event)
    return IDLE if timer is None else STATES[timer]


class ControllerMetrics:
    """See the module. Times are in microseconds."""

    def __init__(self) -> None:
        self.event_queue = Histogram()
        self.timers = {name: Histogram() for name in STATES}
        self.request_queues: dict[int, Histogram] = {}
        """Queue waits by broker."""

    def on_event(self, name: str, queued_seconds: float, seconds: float) -> None:
        """An event of the controller was handled."""
        self.event_queue.add(int(queued_seconds * 1e6))
        timer = _TIMER_OF.get(name)
        if timer is not None:
            self.timers[timer].add(int(seconds * 1e6))

    def on_sent(self, broker_id: int, queued_seconds: float) -> None:
        """A request of the controller left its queue."""
        queue = self.request_queues.get(broker_id)
        if queue is None:
            queue = self.request_queues[broker_id] = Histogram()
        queue.add(int(queued_seconds * 1e6))

    def turn(self) -> None:
        """Rotate the windows of the quantiles."""
        for histogram in (self.event_queue, *self.timers.values(), *self.request_queues.values()):
            histogram.turn()
