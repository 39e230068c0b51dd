"""Builds Produce requests of every shape, and reads the partitions of a decoded one."""

import os
from hashlib import blake2b
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ottla.protocol.cursors.request_reader import NOTHING, RequestReader
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Shown = tuple[bytes, int, bytes | None]

MANY_EXAMPLES = settings(
    deadline=None, max_examples=1000 if "OTTLA_SOAK" in os.environ else 80, suppress_health_check=[HealthCheck.too_slow]
)
"""Over all versions. Making an example takes much longer than reading it, above all with a sanitizer."""

TEXTS = st.text("abc ?ü\u20ac\U0001f600", max_size=5)
NAMES = st.one_of(TEXTS, st.sampled_from(["orders", "grün", "n" * 126, "n" * 127, "n" * 249]))
RECORDS = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([126, 127, 16_382, 16_383]).map(bytes))
TAGS = st.one_of(st.none(), st.dictionaries(st.integers(0, 300), st.binary(max_size=200), min_size=1, max_size=3))


def advance_to(reader: RequestReader, kind: int) -> bool:
    """Move to the next element of this kind; False when one of another comes first, or the end."""
    while (found := reader.advance()) == NOTHING:
        pass
    return found == kind


def a_request(
    topics: int = 1, partitions: int = 1, records: int = 100, transactional_id: str | None = None, name: str = "orders"
) -> ProduceRequest:
    """Distinct topics with equal partitions."""
    data = [PartitionProduceData(index=index, records=bytes([index % 256]) * records) for index in range(partitions)]
    names = [f"{name}-{number}" for number in range(topics)]
    topic_data = [TopicProduceData(name=each, topic_id=id_of(each), partition_data=data) for each in names]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=topic_data)


def id_of(name: str) -> bytes:
    """An id for a topic of this name."""
    return blake2b(name.encode(), digest_size=16).digest()


def key_of(topic: Any, *, is_id: bool) -> bytes:
    """The bytes by which a version names a topic."""
    found: bytes = topic.topic_id if is_id else topic.name.encode()
    return found


def tagged(value: Any, tags: dict[int, bytes] | None) -> Any:
    """The value with unknown tagged fields."""
    value.unknown_tagged_fields = tags
    return value


@st.composite
def produce_requests(draw: st.DrawFn, version: int) -> ProduceRequest:
    """With 0 to 50 partitions; tagged fields where the version has any."""
    tags = TAGS if version >= 9 else st.none()
    partition = st.builds(
        lambda index, records, tags: tagged(PartitionProduceData(index=index, records=records), tags),
        st.integers(-(2**31), 2**31 - 1) | st.integers(0, 5),
        RECORDS,
        tags,
    )
    left = 50
    topics = []
    for _ in range(draw(st.integers(0, 6))):
        partitions = draw(st.lists(partition, max_size=min(left, 20)))
        left -= len(partitions)
        name = draw(NAMES)
        topics.append(tagged(TopicProduceData(name=name, topic_id=id_of(name), partition_data=partitions), draw(tags)))
    request = ProduceRequest(
        transactional_id=draw(st.none() | TEXTS) if version >= 3 else None,
        acks=draw(st.sampled_from([-1, 0, 1, 7])),
        timeout_ms=draw(st.integers(-(2**31), 2**31 - 1)),
        topic_data=topics,
    )
    return tagged(request, draw(tags))


def shown(request: ProduceRequest, version: int) -> list[Shown]:
    """(topic, index, records) of every partition, in order. The topic is its name, from version 13 on its id."""
    return [
        (key_of(topic, is_id=version >= 13), data.index, None if data.records is None else bytes(data.records))
        for topic in request.topic_data
        for data in topic.partition_data
    ]
