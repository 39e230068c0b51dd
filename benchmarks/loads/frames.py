"""Makes request frames as the load generator sends them, with their length, and finds the places of error codes in their answers.

By default the version is that of Apache Kafka's own 3.9 clients. The correlation id is 0; a sender patches bytes 8 to 12.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.schema.framing import frame
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api

VERSIONS = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 17,
    ApiKey.METADATA: 12,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.CREATE_ACLS: 3,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
}
FIRST_WITH_TOPIC_IDS = 13
"""Version of Fetch; topics have names before it."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_FIRST_WITH_SESSIONS = 7
_ALL_BYTES = 50 << 20  # of an answer to a consumer's Fetch, by default

_CLIENT_ID = "loadgen"
ALL_IN_SYNC_REPLICAS = -1
_MARK = 0x7BCD  # an error code that stands nowhere else in an answer


class Asked(NamedTuple):
    """The part of a Fetch about one partition."""

    partition: int
    offset: int
    max_bytes: int


class Session(NamedTuple):
    """The fetch session that a request belongs to; by default, none."""

    session_id: int = 0
    epoch: int = -1


NO_SESSION = Session()
NEW_SESSION = Session(epoch=0)


def request_frame(key: ApiKey, request: Message, version: int | None = None) -> bytes:
    """A whole request, in the version of VERSIONS unless another is named."""
    version = VERSIONS[key] if version is None else version
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=0, client_id=_CLIENT_ID)
    return frame(header.encode(api(key).request_header_version(version)), request.encode(version))


def answer_frame(key: ApiKey, answer: Message, version: int | None = None) -> bytes:
    """A whole answer, without its length: it begins with the correlation id."""
    version = VERSIONS[key] if version is None else version
    return ResponseHeader(correlation_id=0).encode(api(key).response_header_version(version)) + answer.encode(version)


def produce(topic: str, partition: int, batch: bytes) -> bytes:
    """One batch to one partition, acks=all."""
    return produce_partitions(topic, {partition: batch})


def produce_partitions(
    topic: str,
    batches: Mapping[int, bytes],
    acks: int = ALL_IN_SYNC_REPLICAS,
    version: int | None = None,
    transactional_id: str | None = None,
) -> bytes:
    """One batch for each of these partitions of a topic."""
    partitions = [PartitionProduceData(index=partition, records=memoryview(batch)) for partition, batch in batches.items()]
    data = TopicProduceData(name=topic, partition_data=partitions)
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=[data])
    return request_frame(ApiKey.PRODUCE, request, version)


def produce_error_offsets(topic: str, partitions: int = 1, version: int | None = None) -> tuple[int, ...]:
    """Places of the error codes in the answer to `produce_partitions`, counted from the correlation id."""
    codes = [_MARK + at for at in range(partitions)]
    return error_offsets(answer_frame(ApiKey.PRODUCE, _produced(topic, codes), version), codes)


def produce_answer_bytes(topic: str, partitions: int = 1, version: int | None = None) -> int:
    """Size of the answer to `produce_partitions`, with its length field."""
    return len(frame(answer_frame(ApiKey.PRODUCE, _produced(topic, [0] * partitions), version)))


def _produced(topic: str, codes: Sequence[int]) -> ProduceResponse:
    partitions = [PartitionProduceResponse(index=0, error_code=code, base_offset=0) for code in codes]
    return ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=partitions)])


def fetch(topic_id: bytes, partition: int, offset: int, max_bytes: int) -> bytes:
    """At most `max_bytes` of one partition, outside any session, answered at once if there is a byte."""
    return fetch_partitions("", topic_id, [Asked(partition, offset, max_bytes)], max_bytes=max_bytes)


def fetch_partitions(
    topic: str,
    topic_id: bytes,
    asked: Sequence[Asked],
    version: int | None = None,
    session: Session = NO_SESSION,
    max_bytes: int = _ALL_BYTES,
    isolation_level: int = READ_UNCOMMITTED,
) -> bytes:
    """A Fetch of partitions of one topic, answered at once if there is a byte. The version decides whether name or id is sent."""
    partitions = [FetchPartition(partition=each.partition, fetch_offset=each.offset, partition_max_bytes=each.max_bytes) for each in asked]
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)],
    )
    return request_frame(ApiKey.FETCH, request, version)


def fetch_error_offsets(topic: str = "", version: int | None = None) -> tuple[int, ...]:
    """Places of the request's error code in the answer to a fetch, if its version has one, and of the first partition's."""
    version = VERSIONS[ApiKey.FETCH] if version is None else version
    codes = [_MARK, _MARK + 1][version < _FIRST_WITH_SESSIONS :]
    partition = PartitionData(partition_index=0, error_code=_MARK + 1, high_watermark=0, records=None)
    response = FetchResponse(error_code=_MARK, responses=[FetchableTopicResponse(topic=topic, partitions=[partition])])
    return error_offsets(answer_frame(ApiKey.FETCH, response, version), codes)


def session_id_offset() -> int:
    """Place of the session id in the answer to a fetch, counted from the correlation id."""
    (place,) = error_offsets(answer_frame(ApiKey.FETCH, FetchResponse(session_id=_MARK)), [_MARK])
    return place - 2  # the mark is the lower half


def session_offsets(fetch: Callable[[Session], bytes]) -> tuple[int, int]:
    """Places of session id and epoch in a frame of Fetch that `fetch` makes."""
    marked = Session(_MARK << 16 | _MARK, (_MARK + 1) << 16 | (_MARK + 1))
    made = fetch(marked)
    return made.index(marked.session_id.to_bytes(4, "big")), made.index(marked.epoch.to_bytes(4, "big"))


def error_offset(key: ApiKey, answer: Callable[[int], Message], version: int | None = None) -> int:
    """Place of the error code that `answer` puts into a response, counted from the correlation id."""
    return error_offsets(answer_frame(key, answer(_MARK), version), [_MARK])[0]


def error_offsets(answer: bytes, codes: Sequence[int]) -> tuple[int, ...]:
    """Places of these codes in an answer that contains each of them once."""
    return tuple(answer.index(code.to_bytes(2, "big")) for code in codes)
