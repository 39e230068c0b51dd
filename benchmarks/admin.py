"""A blocking client for what a benchmark asks of a broker besides load: its versions, topics made and dropped, topic ids."""

import socket
import struct
import time
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from benchmarks.frames import VERSIONS, request_frame
from protocol.api_keys import ApiKey
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol.messages.header import ResponseHeader
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.registry import api
from protocol.schema import Message

_TIMEOUT_S = 60.0
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
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        (created,) = self.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics
        _check(created.error_code, f"CreateTopics {name}", created.error_message)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            (found,) = self.ask(ApiKey.METADATA, request, MetadataResponse).topics
            led = [partition for partition in found.partitions if partition.error_code == 0 and partition.leader_id >= 0]
            if found.error_code == 0 and len(led) == partitions:
                return Topic(name, found.topic_id, partitions)
            if time.monotonic() > deadline:
                raise BrokerRefusedError(f"topic {name} has no leaders {_TIMEOUT_S:.0f} s after its creation")
            time.sleep(0.02)

    def delete_topic(self, name: str) -> None:
        """Raises BrokerRefusedError."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
        (deleted,) = self.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse).responses
        _check(deleted.error_code, f"DeleteTopics {name}", deleted.error_message)

    def ask(self, key: ApiKey, request: Message, answers: type[_Answer]) -> _Answer:
        """The answer in the version of `frames.VERSIONS`."""
        self._connection.sendall(request_frame(key, request))
        (length,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(length)
        version = VERSIONS[key]
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


def _check(code: int, asked: str, message: str | None = None) -> None:
    if code:
        raise BrokerRefusedError(f"{asked}: error code {code}{f' ({message})' if message else ''}")
