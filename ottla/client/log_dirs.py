"""Asks brokers for their log directories and the replicas in them."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import check
from ottla.client.offsets import by_topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.topic_partition import TopicPartition


class Replica(NamedTuple):
    """A replica in a log directory. `lag` is the number of records that it is behind. A future replica is being moved there."""

    partition: TopicPartition
    bytes: int
    lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A log directory of a broker. Without `error` it is online; the sizes of its disk are None for brokers older than 3.3."""

    broker: int
    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: list[Replica]


def log_dirs(cluster: Cluster, broker_id: int, partitions: Iterable[TopicPartition] | None = None) -> list[LogDir]:
    """The log directories of a broker, with the replicas of these partitions, or of all. Raises ClientError."""
    topics = None
    if partitions is not None:
        topics = [DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()]

    def attempt() -> list[LogDir]:
        answer = cluster.ask_broker(broker_id, DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
        check(f"the log directories of broker {broker_id}", answer.error_code)
        return [
            LogDir(
                broker_id,
                result.log_dir,
                ErrorCode.of(result.error_code).name if result.error_code else None,
                result.total_bytes if result.total_bytes >= 0 else None,
                result.usable_bytes if result.usable_bytes >= 0 else None,
                [
                    Replica(TopicPartition(topic.name, part.partition_index), part.partition_size, part.offset_lag, part.is_future_key)
                    for topic in sorted(result.topics, key=lambda topic: topic.name)
                    for part in sorted(topic.partitions, key=lambda part: part.partition_index)
                ],
            )
            for result in answer.results
        ]

    return cluster.until_done(attempt)
