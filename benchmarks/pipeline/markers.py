"""Offsets without a record that are no gaps: a transaction leaves a marker in every partition that it wrote to.

Consumers, and so Spark, never see the marker. Whether one stands at an offset is read from the headers of the broker's batches.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.pipeline.plan import DidNotFinish, Plan
from benchmarks.pipeline.topic import connected
from broker.cli.client.cluster import Cluster, TopicPartition
from broker.cli.client.errors import ClientError, check
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.record_errors import RecordFormatError
from protocol.records import BatchHeader, iter_batches

_AT_ONCE_BYTES = 1 << 16

Place = tuple[int, int]
"""Partition and offset."""


def markers_among(plan: Plan, places: Iterable[Place]) -> list[Place]:
    """Those places at which the broker keeps a marker. Raises DidNotFinish."""
    found: list[Place] = []
    wanted: dict[int, list[int]] = {}
    for partition, offset in sorted(places, reverse=True):
        wanted.setdefault(partition, []).append(offset)
    try:
        with connected(plan) as cluster:
            for partition, offsets in wanted.items():
                found += [(partition, offset) for offset in _markers(cluster, TopicPartition(plan.topic, partition), offsets)]
    except (ClientError, RecordFormatError) as error:
        raise DidNotFinish(f"{plan.bootstrap}: does not say what stands where no record is: {error}") from None
    return found


def _markers(cluster: Cluster, partition: TopicPartition, offsets: list[int]) -> Iterable[int]:
    """`offsets` fall; it is emptied."""
    while offsets:
        batches = cluster.until_done(lambda: _batches_from(cluster, partition, offsets[-1]))
        end = max((batch.next_offset for batch in batches), default=0)
        end = max(end, offsets[-1] + 1)  # nothing stands there any more
        while offsets and offsets[-1] < end:
            offset = offsets.pop()
            if any(batch.is_control and batch.base_offset <= offset < batch.next_offset for batch in batches):
                yield offset


def _batches_from(cluster: Cluster, partition: TopicPartition, offset: int) -> list[BatchHeader]:
    """The headers of the batch that holds the offset and of some after it."""
    wanted = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=_AT_ONCE_BYTES)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=_AT_ONCE_BYTES, topics=[FetchTopic(topic=partition.topic, partitions=[wanted])]
    )
    answer = cluster.ask_broker(cluster.leader(partition), request, FetchResponse)
    check(f"fetching from {partition}", answer.error_code)
    headers: list[BatchHeader] = []
    for topic in answer.responses:
        for data in topic.partitions:
            check(str(partition), data.error_code)
            headers += [header for _, header in iter_batches(data.records or b"")]
    return headers
