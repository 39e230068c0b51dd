"""Request frames as the load generator sends them, length included, and the places in their responses where an error code stands.

One version per API, the one that Apache Kafka's own 3.9 clients use. The correlation id is 0; whoever sends a frame patches bytes 8 to 12.
"""

from collections.abc import Callable
from functools import partial

from protocol.api_keys import ApiKey
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.header import RequestHeader, ResponseHeader
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.schema.framing import frame
from protocol.schema.message import Message
from protocol.schema.registry import api

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
}
_CLIENT_ID = "loadgen"
_ALL_IN_SYNC_REPLICAS = -1
_MARK = 0x7BCD  # an error code that stands nowhere else in an answer


def request_frame(key: ApiKey, request: Message) -> bytes:
    """A whole request in the version of VERSIONS."""
    version = VERSIONS[key]
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=0, client_id=_CLIENT_ID)
    return frame(header.encode(api(key).request_header_version(version)), request.encode(version))


def produce(topic: str, partition: int, batch: bytes) -> bytes:
    """One batch to one partition, acks=all."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=memoryview(batch))])
    return request_frame(ApiKey.PRODUCE, ProduceRequest(acks=_ALL_IN_SYNC_REPLICAS, timeout_ms=30_000, topic_data=[data]))


def produce_error_offsets(topic: str) -> tuple[int, ...]:
    """Where the error code stands in the answer to `produce`, counted from the correlation id."""
    return (error_offset(ApiKey.PRODUCE, partial(_produced, topic)),)


def produce_answer_bytes(topic: str) -> int:
    """How long the answer to `produce` is, length included."""
    version = VERSIONS[ApiKey.PRODUCE]
    header = ResponseHeader(correlation_id=0).encode(api(ApiKey.PRODUCE).response_header_version(version))
    return len(frame(header, _produced(topic, 0).encode(version)))


def _produced(topic: str, code: int) -> ProduceResponse:
    partition = PartitionProduceResponse(index=0, error_code=code, base_offset=0)
    return ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[partition])])


def fetch(topic_id: bytes, partition: int, offset: int, max_bytes: int) -> bytes:
    """At most `max_bytes` of one partition, outside any session, answered at once if there is a byte."""
    asked = FetchTopic(
        topic_id=topic_id, partitions=[FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)]
    )
    return request_frame(ApiKey.FETCH, FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, topics=[asked]))


def fetch_error_offsets() -> tuple[int, ...]:
    """Where the request's and the partition's error codes stand in the answer to `fetch`, counted from the correlation id."""

    def answer(of_request: int, of_partition: int) -> FetchResponse:
        partition = PartitionData(partition_index=0, error_code=of_partition, high_watermark=0, records=None)
        return FetchResponse(error_code=of_request, responses=[FetchableTopicResponse(partitions=[partition])])

    return error_offset(ApiKey.FETCH, lambda code: answer(code, 0)), error_offset(ApiKey.FETCH, lambda code: answer(0, code))


def error_offset(key: ApiKey, answer: Callable[[int], Message]) -> int:
    """Where the error code stands that `answer` puts into a response, counted from the correlation id."""
    version = VERSIONS[key]
    header = ResponseHeader(correlation_id=0).encode(api(key).response_header_version(version))
    return (header + answer(_MARK).encode(version)).index(_MARK.to_bytes(2, "big"))
