"""Declares the errors of requests to a replica, with the facts in fields. `coordination/error_map.py` maps them to wire codes."""

from ottla.protocol.topic_partition import TopicPartition


class ReplicationError(Exception):
    """Base of the errors of the replication floor."""


class UnknownTopicOrPartition(ReplicationError):
    """The partition is neither hosted here nor known to the cluster."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(f"this server does not host {topic}-{partition}")
        self.topic_partition = TopicPartition(topic, partition)


class UnknownTopicId(ReplicationError):
    """No topic with this id."""


class InvalidTopicName(ReplicationError):
    """The topic's name does not allow the operation."""


class InconsistentTopicId(ReplicationError):
    """The id in the request is not the id of the topic's log."""


class NotLeaderOrFollower(ReplicationError):
    """Another broker leads the partition; `leader_id` is -1 when none does."""

    def __init__(self, topic: str, partition: int, leader_id: int = -1, leader_epoch: int = -1) -> None:
        super().__init__(f"this broker does not lead {topic}-{partition}")
        self.topic_partition = TopicPartition(topic, partition)
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class FencedLeaderEpoch(ReplicationError):
    """The sender knows an older leader epoch than this replica."""

    def __init__(self, topic_partition: TopicPartition, asked: int, current: int) -> None:
        super().__init__(f"{topic_partition}: leader epoch {asked} is older than {current}")
        self.topic_partition = topic_partition
        self.asked = asked
        self.current = current


class UnknownLeaderEpoch(ReplicationError):
    """The sender knows a newer leader epoch than this replica."""

    def __init__(self, topic_partition: TopicPartition, asked: int, current: int) -> None:
        super().__init__(f"{topic_partition}: leader epoch {asked} is newer than {current}")
        self.topic_partition = topic_partition
        self.asked = asked
        self.current = current


class NotEnoughReplicas(ReplicationError):
    """With acks=all, fewer replicas are in sync than min.insync.replicas requires. Nothing was appended."""

    def __init__(self, topic_partition: TopicPartition, in_sync: int, required: int) -> None:
        super().__init__(f"{topic_partition}: {in_sync} replicas in sync, min.insync.replicas is {required}")
        self.topic_partition = topic_partition
        self.in_sync = in_sync
        self.required = required


class NotEnoughReplicasAfterAppend(ReplicationError):
    """The records were appended and replicated, but fewer replicas are in sync by now than min.insync.replicas requires."""

    def __init__(self, topic_partition: TopicPartition, in_sync: int, required: int) -> None:
        super().__init__(f"{topic_partition}: {in_sync} replicas in sync after the append, min.insync.replicas is {required}")
        self.topic_partition = topic_partition
        self.in_sync = in_sync
        self.required = required


class RecordsNotDeletable(ReplicationError):
    """DeleteRecords for a topic whose cleanup.policy does not include `delete`."""


class UnknownReplica(ReplicationError):
    """A broker fetches as a follower of a partition of which it is no replica."""


class OffsetNotAvailable(ReplicationError):
    """A new leader's high watermark has not reached the start of its epoch yet."""


class ReplicaStorageFailure(ReplicationError):
    """The log directory of this partition is offline."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        super().__init__(f"{topic_partition}: its log directory is offline")
        self.topic_partition = topic_partition
