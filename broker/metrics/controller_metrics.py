"""Measures the controller: the duration of its events (Kafka's ControllerStats) and the waits of events and requests in
their queues.

`Controller.measure` passes each event and request to a `ControllerMetrics`. They are rare, so each is measured.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from ottla.broker.metrics.histogram import Histogram

IDLE: Final = 0


class State(NamedTuple):
    """A state of the controller: Kafka's number of it, and its work, for which the controller needs time."""

    number: int
    work: str


STATES: Final = {
    "ControllerChange": State(1, "to take part in the election of a controller, and to become it"),
    "LeaderElection": State(2, "to handle brokers that started or ended"),
    "TopicChange": State(3, "to handle new topics and partitions"),
    "TopicDeletion": State(4, "to delete topics"),
    "PartitionReassignment": State(5, "to begin, continue and end reassignments of partitions"),
    "AutoLeaderBalance": State(6, "to give leadership back to preferred replicas (auto.leader.rebalance.enable)"),
    "ManualLeaderBalance": State(7, "to elect leaders on request"),
    "ControlledShutdown": State(8, "to take leadership away from brokers that stop"),
    "IsrChange": State(9, "to change ISRs"),
    "LeaderAndIsrResponseReceived": State(10, "to handle answers that report failed directories"),
    "LogDirChange": State(11, "to handle failures of log directories"),
    "UncleanLeaderElectionEnable": State(13, "to elect leaders after unclean.leader.election.enable was set for all topics"),
    "TopicUncleanLeaderElectionEnable": State(14, "the same for one topic"),
}
"""The states with work, by the names of Kafka's timers of that work."""

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
    return IDLE if timer is None else STATES[timer].number


class ControllerMetrics:
    """See the module. Times are in microseconds."""

    def __init__(self) -> None:
        self.event_queue = Histogram()
        self.timers = {name: Histogram() for name in STATES}
        self.request_queues: defaultdict[int, Histogram] = defaultdict(Histogram)
        """Queue waits by broker."""

    def on_event(self, name: str, queued_seconds: float, seconds: float) -> None:
        """An event of the controller was handled."""
        self.event_queue.add_seconds(queued_seconds)
        timer = _TIMER_OF.get(name)
        if timer is not None:
            self.timers[timer].add_seconds(seconds)

    def on_sent(self, broker_id: int, queued_seconds: float) -> None:
        """A request of the controller left its queue."""
        self.request_queues[broker_id].add_seconds(queued_seconds)

    def turn(self) -> None:
        """Rotate the windows of the quantiles."""
        for histogram in (self.event_queue, *self.timers.values(), *self.request_queues.values()):
            histogram.turn()
