"""Sends all requests of a benchmark except the load, and waits for their effect: versions, topics, their ends, producer ids."""

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from benchmarks.loads.frames import VERSIONS, request_frame
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api

NOTHING: Final[Mapping[str, str]] = {}
_TIMEOUT_S = 60.0
_LATEST = -1  # in place of a timestamp
GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""
_NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
_AGAIN_S = 0.05
_Answer = TypeVar("_Answer", bound=Message)


class BrokerRefusedError(RuntimeError):
    """The broker answered with an error code, or not at all."""


class Topic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: int


class Admin:
    """One connection to a broker."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = socket.create_connection((host, port), _TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """api key -> (lowest, highest version) the broker lists."""
        request = ApiVersionsRequest(client_software_name="loadgen", client_software_version="1")
        answer = self.ask(ApiKey.API_VERSIONS, request, ApiVersionsResponse)
        _check(answer.error_code, "ApiVersions")
        return {listed.api_key: (listed.min_version, listed.max_version) for listed in answer.api_keys}

    def create_topic(self, name: str, partitions: int) -> Topic:
        """Create a topic with one replica and wait until every partition has its leader. Raises BrokerRefusedError."""
        return self.create_topics([name], partitions)[0]

    def create_topics(self, names: Sequence[str], partitions: int, config: Mapping[str, str] = NOTHING) -> list[Topic]:
        """Create topics of `partitions` partitions with one replica in one request, and wait for all leaders. Raises BrokerRefusedError."""
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in config.items()]
        topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs) for name in names]
        for created in self.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=topics), CreateTopicsResponse).topics:
            _check(created.error_code, f"CreateTopics {created.name}", created.error_message)
        self.wait_for_leaders(names, partitions)
        return [self.described(name) for name in names]

    def described(self, name: str) -> Topic:
        """A topic that there is."""
        (found,) = self._described([name])
        return Topic(name, found.topic_id, len(found.partitions))

    def wait_for_leaders(self, names: Sequence[str], partitions: int) -> None:
        """Wait until every partition of these topics has a leader. Raises BrokerRefusedError."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not all(found.error_code == 0 and _led(found) == partitions for found in self._described(names)):
            if time.monotonic() > deadline:
                raise BrokerRefusedError(f"{names[0]} and others have no leaders after {_TIMEOUT_S:.0f} s")
            time.sleep(0.02)

    def controller_id(self) -> int:
        """The broker that creates topics; -1 while there is none."""
        return self.ask(ApiKey.METADATA, MetadataRequest(topics=[]), MetadataResponse).controller_id

    def leaders(self, name: str) -> dict[int, int]:
        """partition -> the broker that leads it."""
        (found,) = self._described([name])
        return {partition.partition_index: partition.leader_id for partition in found.partitions}

    def ends(self, topic: Topic) -> list[int]:
        """The log end offset of every partition. Raises BrokerRefusedError."""
        wanted = [ListOffsetsPartition(partition_index=at, timestamp=_LATEST) for at in range(topic.partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=wanted)])
        (found,) = self.ask(ApiKey.LIST_OFFSETS, request, ListOffsetsResponse).topics
        for partition in found.partitions:
            _check(partition.error_code, f"ListOffsets {topic.name}-{partition.partition_index}")
        offsets = {partition.partition_index: partition.offset for partition in found.partitions}
        return [offsets[at] for at in range(topic.partitions)]

    def producer_id(self) -> int:
        """A new producer id for an idempotent producer. Raises BrokerRefusedError."""
        return self.transactional_producer(None)[0]

    def transactional_producer(self, transactional_id: str | None) -> tuple[int, int]:
        """The producer id and epoch of a producer that begins; this broker must coordinate the id. Raises BrokerRefusedError."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            answer = self.ask(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
            if answer.error_code not in _NOT_YET or time.monotonic() > deadline:
                break
            time.sleep(_AGAIN_S)  # the broker has asked the controller for more of them, or loads, or finishes a transaction
        _check(answer.error_code, "InitProducerId")
        return answer.producer_id, answer.producer_epoch

    def coordinator_port(self, kind: int, key: str) -> int:
        """The port of the coordinator of a group or a transactional id; its topic is created meanwhile. Raises BrokerRefusedError."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            (found,) = self.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse).coordinators
            if found.error_code not in _NOT_YET or time.monotonic() > deadline:
                break
            time.sleep(_AGAIN_S)
        _check(found.error_code, f"FindCoordinator {key}")
        return found.port

    def _described(self, names: Sequence[str]) -> Sequence[MetadataResponseTopic]:
        wanted = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return self.ask(ApiKey.METADATA, request, MetadataResponse).topics

    def delete_topic(self, name: str) -> None:
        """Raises BrokerRefusedError."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
        (deleted,) = self.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse).responses
        _check(deleted.error_code, f"DeleteTopics {name}", deleted.error_message)

    def ask(self, key: ApiKey, request: Message, answers: type[_Answer], version: int | None = None) -> _Answer:
        """The answer in the version of `frames.VERSIONS`, unless another is named."""
        self._connection.sendall(request_frame(key, request, version))
        (length,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(length)
        version = VERSIONS[key] if version is None else version
        _, body = ResponseHeader.decode(answer, api(key).response_header_version(version))
        return answers.decode(answer, version, body)[0]

    def _receive(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            more = self._connection.recv(count - len(received))
            if not more:
                raise BrokerRefusedError("the broker closed the connection instead of answering")
            received += more
        return received


def _led(topic: MetadataResponseTopic) -> int:
    return sum(partition.error_code == 0 and partition.leader_id >= 0 for partition in topic.partitions)


def _check(code: int, asked: str, message: str | None = None) -> None:
    if code:
        raise BrokerRefusedError(f"{asked}: error code {code}{f' ({message})' if message else ''}")
