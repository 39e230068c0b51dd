"""Counts the work of tiered storage, for each topic and partition, under Kafka's names."""

from __future__ import annotations

from ottla.protocol.topic_partition import TopicPartition


class RemoteTopicStats:
    """Totals of one topic since it came to this broker: requests to the store, bytes of records, and errors."""

    __slots__ = (
        "build_aux_state_errors",
        "build_aux_state_requests",
        "copy_bytes",
        "copy_errors",
        "copy_requests",
        "delete_errors",
        "delete_requests",
        "remote_fetch_bytes",
        "remote_fetch_errors",
        "remote_fetch_requests",
    )

    def __init__(self) -> None:
        self.copy_bytes = 0
        self.copy_requests = 0
        self.copy_errors = 0
        self.delete_requests = 0
        self.delete_errors = 0
        self.build_aux_state_requests = 0
        self.build_aux_state_errors = 0
        self.remote_fetch_requests = 0
        self.remote_fetch_bytes = 0
        self.remote_fetch_errors = 0


class RemotePartitionState:
    """The last findings of a leader's tasks: the rest to be copied and deleted, and the size of the remote part.

    `missing_offsets` are neither in the store nor on this broker.
    """

    __slots__ = (
        "copy_lag_bytes",
        "copy_lag_segments",
        "delete_lag_bytes",
        "delete_lag_segments",
        "log_size_bytes",
        "log_size_computation_ms",
        "lost_log_bytes",
        "lost_log_segments",
        "metadata_count",
        "missing_offsets",
    )

    def __init__(self) -> None:
        self.copy_lag_bytes = 0
        self.copy_lag_segments = 0
        self.delete_lag_bytes = 0
        self.delete_lag_segments = 0
        self.metadata_count = 0
        self.log_size_bytes = 0
        self.log_size_computation_ms = 0.0
        self.lost_log_bytes = 0
        self.lost_log_segments = 0
        self.missing_offsets = 0


class RemoteCounters:
    """The counters of one broker. `partitions` has those that it leads."""

    __slots__ = ("partitions", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, RemoteTopicStats] = {}
        self.partitions: dict[TopicPartition, RemotePartitionState] = {}

    def of(self, topic: str) -> RemoteTopicStats:
        """The totals of a topic."""
        stats = self.topics.get(topic)
        if stats is None:
            stats = self.topics[topic] = RemoteTopicStats()
        return stats
