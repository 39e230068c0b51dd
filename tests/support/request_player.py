"""Sends the requests of a history to one broker, and brings its answers into a form that does not depend on the broker.

Topic ids become names, sessions, ports and directories become words, batches lose what the broker wrote into them, and whatever is in no
particular order is sorted.
"""

from __future__ import annotations

import math
import re
import socket
import struct
from typing import Any

from ottla.broker.handlers.table import IMPLEMENTED
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.schema.api_versions import versions_in_3_9
from ottla.protocol.schema.message import Message, Struct
from ottla.protocol.schema.registry import api
from ottla.protocol.uuid import ZERO_UUID
from tests.support.golden_replay import comparable, receive
from tests.support.request_histories import BROKER_LOGGER, Step
from tests.support.request_pools import ABSENT_ID, FIRST_TIMESTAMP
from tests.support.request_symbols import IdOf, Own

ANSWER_SECONDS = 90.0
CLOSED = "the connection was closed"
OVERHEAD = 12
SINCE_TESTS_EXIST = FIRST_TIMESTAMP + 10**10
"""Times after this are the broker's, not the records'."""
LOG_APPEND_TIME = 8
OWN_CONFIGS = frozenset(
    {
        *("log.dirs", "log.dir", "listeners", "advertised.listeners", "zookeeper.connect", "metadata.file"),
        *("offsets.topic.replication.factor", "transaction.state.log.replication.factor", "transaction.state.log.min.isr"),
        "group.initial.rebalance.delay.ms",
    }
)
_SIZE = struct.Struct(">i")
_NOW = re.compile(r"\[-?\d{13,}, -?\d{13,}\]")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Answer = Any
"""Nested dicts and lists, or CLOSED."""


class RequestPlayer:
    """One client of one broker, with the values from its answers."""

    def __init__(self, port: int, data_directory: str) -> None:
        self._port = port
        self._data_directory = data_directory
        self._socket: socket.socket | None = None
        self._ids: dict[str, bytes] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._client_id: str | None = None
        self.sessions: list[int] = []

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def play(self, step: Step) -> Answer:
        """The answer in comparable form."""
        if step.request is None:
            return self._play_unknown_version(step)
        self._client_id = step.client_id
        request = self._resolved(step.request)
        if step.api_key is ApiKey.PRODUCE and request.acks == 0:
            # Nothing is answered: whether the connection is still good says how it went.
            self._send(step.api_key, step.version, request.encode(step.version))
            return CLOSED if self.ask(ApiVersionsRequest(), 0) is None else "the connection is open"
        response = self.ask(request, step.version)
        if isinstance(response, FetchResponse):
            self._note_session(request, response)
        return CLOSED if response is None else self.comparable(response)

    def ask(self, request: Message, version: int) -> Any:
        """The response, or None when the connection is closed instead."""
        key = ApiKey(request.SCHEMA.api_key)  # type: ignore[arg-type]  # requests have one
        types = api(key)
        try:
            self._send(key, version, request.encode(version))
            answer = self._receive()
        except (EOFError, ConnectionError):
            self.close()
            return None
        except TimeoutError:
            self.close()
            raise AssertionError(f"no answer from {self._data_directory} to {request}") from None
        _, offset = ResponseHeader.decode(answer, types.response_header_version(version), 0)
        response, end = types.response.decode(answer, version, offset)
        assert end == len(answer), f"{len(answer) - end} bytes behind {response}"
        return response

    def learn_ids(self, names: list[str]) -> Answer:
        """Which of these topics there are, with their partitions; their ids are known from now on."""
        response = self.ask(
            MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False), 12
        )
        assert response is not None
        self._ids |= {topic.name: topic.topic_id for topic in response.topics if topic.topic_id != ZERO_UUID}
        return self.comparable(response)

    def comparable(self, response: Message) -> Answer:
        """Without what two brokers cannot have in common."""
        is_versions = isinstance(response, ApiVersionsResponse)
        found = comparable(response, self._rewrite)
        if isinstance(response, InitProducerIdResponse):
            found["producer_id"] = min(response.producer_id, 0)
        if is_versions:
            listed = [each for each in found["api_keys"] if each["api_key"] in IMPLEMENTED]
            found["api_keys"] = [
                each | {"max_version": min(each["max_version"], versions_in_3_9(ApiKey(each["api_key"])).last)} for each in listed
            ]
        return found

    def _play_unknown_version(self, step: Step) -> Answer:
        try:
            self._send(step.api_key, step.version, b"")
            answer = self._receive()
        except (EOFError, ConnectionError):
            self.close()
            return CLOSED
        return answer[4:].hex() if step.api_key is not ApiKey.API_VERSIONS else answer[4:12].hex()

    def _send(self, key: ApiKey, version: int, body: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), ANSWER_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        types = api(key)
        header_version = types.request_header_version(min(max(version, types.versions.first), types.versions.last))
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id=self._client_id)
        frame = header.encode(header_version) + body
        self._socket.sendall(_SIZE.pack(len(frame)) + frame)

    def _receive(self) -> bytes:
        assert self._socket is not None
        return receive(self._socket)

    def _note_session(self, request: Any, response: FetchResponse) -> None:
        if response.error_code == ErrorCode.NONE and response.session_id:
            if request.session_epoch == 0:
                self.sessions.append(response.session_id)
                self._session_id, self._session_epoch = response.session_id, 1
            elif request.session_id == self._session_id:
                self._session_epoch += 1

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, IdOf):
            return self._ids.get(value.topic, ABSENT_ID)
        if isinstance(value, Own):
            own = {Own.SESSION: self._session_id, Own.NEXT_EPOCH: self._session_epoch, Own.DATA_DIRECTORY: self._data_directory}
            return own[value]
        if isinstance(value, list):
            return [self._resolved(each) for each in value]
        if isinstance(value, Struct):
            copy = type(value)(**{field.name: self._resolved(getattr(value, field.name)) for field in value.SCHEMA.fields})
            copy.unknown_tagged_fields = value.unknown_tagged_fields
            return copy
        return value

    def _rewrite(self, name: str, value: Any) -> Any:
        match name:
            case "topic_id":
                other = value.hex() if value in (ZERO_UUID, ABSENT_ID) else "some id"
                return next((f"id of {topic}" for topic, known in self._ids.items() if known == value), other)
            case "documentation":
                return value is None
            case "cluster_id" if value is not None:
                return "some cluster" if value else ""
            case "port" if value > 0:
                return "some port"
            case "session_id" | "total_bytes" | "usable_bytes":
                return value if value <= 0 else "some"
            case "log_dir" | "error_message" | "batch_index_error_message" | "value" if isinstance(value, str):
                plain = value.replace(self._data_directory, "DATA").replace(str(self._port), "PORT")
                return _NOW.sub("NOW", _UUID.sub("UUID", plain))
            case "value" if isinstance(value, float) and math.isnan(value):
                return "NaN"
            case "log_append_time_ms" | "timestamp" | "last_timestamp" if value > SINCE_TESTS_EXIST:
                return "now"
            case "records" if value is not None:
                return [*batches_of(bytes(value))]
            case "results":
                # The loggers of two programs have nothing but the root in common.
                for each in value:
                    if each.get("resource_type") == BROKER_LOGGER and "configs" in each:
                        each["configs"] = [config for config in each["configs"] if config["name"] == "root"]
            case "configs" if value:
                return sorted((each for each in value if each.get("name") not in OWN_CONFIGS), key=repr)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return sorted(_grouped(value), key=repr)
        return value


def _grouped(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The partitions of a topic in one place."""
    found: dict[str, dict[str, Any]] = {}
    for topic in topics:
        lists = [name for name in topic if name in ("partitions", "partition_responses", "partition_result")]
        if not lists or topic.get("error_code"):
            return topics
        same = found.setdefault(repr({**topic, lists[0]: []}), {**topic, lists[0]: []})
        same[lists[0]] = sorted([*same[lists[0]], *topic[lists[0]]], key=repr)
    return list(found.values())


def batches_of(records: bytes) -> list[str]:
    """Whole batches, each as its offset and the bytes that are the producer's."""
    found = []
    position = 0
    while position + OVERHEAD <= len(records):
        offset, length = struct.unpack_from(">qi", records, position)
        end = position + OVERHEAD + length
        if end > len(records):
            break
        batch = bytearray(records[position:end])
        batch[12:16] = bytes(4)
        if batch[22] & LOG_APPEND_TIME:
            batch[17:21] = bytes(4)
            batch[35:43] = bytes(8)
        found.append(f"{offset}: {bytes(batch[16:]).hex()}")
        position = end
    return found
