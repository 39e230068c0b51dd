"""Offsets without a record that are no gaps: a transaction leaves a marker in every partition that it wrote to.

Consumers, and so Spark, never see the marker. Whether one stands at an offset is read from the headers of the broker's batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, check
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.records.batch import BatchHeader, iter_batches
from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.topic_partition import TopicPartition
from ottla.validate.plan import DidNotFinish, Plan
from ottla.validate.topic import connected

_AT_ONCE_BYTES = 1 << 16

Place = tuple[int, int]
"""Partition and offset."""
Span = tuple[int, int, int]
"""Partition, first and last offset."""


def markers_among(plan: Plan, topic: str, spans: Iterable[Span]) -> Iterator[Place]:
    """The places of a topic in the spans, which rise, at which the broker keeps a marker. Raises DidNotFinish."""
    try:
        with connected(plan) as cluster:
            for partition, wanted in groupby(spans, itemgetter(0)):
                offsets = _markers(cluster, TopicPartition(topic, partition), ((first, last) for _, first, last in wanted))
                yield from ((partition, offset) for offset in offsets)
    except (ClientError, RecordFormatError) as error:
        raise DidNotFinish(f"{plan.bootstrap}: does not say what stands where no record is: {error}") from None


def _markers(cluster: Cluster, partition: TopicPartition, spans: Iterable[tuple[int, int]]) -> Iterator[int]:
    batches: deque[BatchHeader] = deque()
    known_to = -1
    for first, last in spans:
        at = first
        while at <= last:
            if at >= known_to:
                batches = deque(cluster.until_done(partial(_batches_from, cluster, partition, at)))
                known_to = max(batches[-1].next_offset if batches else 0, at + 1)
            while batches and batches[0].next_offset <= at:
                batches.popleft()
            if not batches:
                at = known_to
                continue
            begin, end = max(at, batches[0].base_offset), min(last + 1, batches[0].next_offset)
            if batches[0].is_control:
                yield from range(begin, end)
            at = end


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
