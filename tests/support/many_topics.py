"""Plays the broker of a cluster with any topics, also those that no real one would make: it answers few requests."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic

_HEAD: Final = struct.Struct(">hhi")
_API_VERSIONS: Final = 3
_METADATA: Final = 12
_LOG_DIRS: Final = 4
_CONFIGS: Final = 4


class _Connection(socketserver.BaseRequestHandler):
    request: socket.socket
    server: _Server

    def handle(self) -> None:
        """Answer until the client leaves."""
        with suppress(ConnectionError):
            while size := self._taken(4):
                key, _, correlation_id = _HEAD.unpack_from(self._taken(int.from_bytes(size, "big")))
                self.server.asked.append(ApiKey(key))
                tags = b"" if key == ApiKey.API_VERSIONS else b"\0"
                answer = struct.pack(">i", correlation_id) + tags + self.server.answers[key]
                self.request.sendall(struct.pack(">i", len(answer)) + answer)

    def _taken(self, count: int) -> bytes:
        """So many bytes; none at the end."""
        found = b""
        while len(found) < count:
            part = self.request.recv(count - len(found))
            if not part:
                return b""
            found += part
        return found


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, answers: Mapping[int, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.answers = dict(answers)
        self.asked: list[ApiKey] = []


class ManyTopics(NamedTuple):
    """The address of the broker, and the requests that it got."""

    bootstrap: str
    asked: list[ApiKey]


@contextmanager
def a_broker_of_topics(names: Sequence[str], partitions: int) -> Iterator[ManyTopics]:
    """A broker whose topics have these names, and so many partitions with three replicas each.

    It says that it is three brokers, and that the replicas of the topic at place N have N bytes.
    """
    apis = (
        (ApiKey.API_VERSIONS, 0, _API_VERSIONS),
        (ApiKey.METADATA, _METADATA, _METADATA),
        (ApiKey.DESCRIBE_LOG_DIRS, _LOG_DIRS, _LOG_DIRS),
        (ApiKey.DESCRIBE_CONFIGS, _CONFIGS, _CONFIGS),
    )
    listed = [ApiVersion(api_key=key, min_version=first, max_version=last) for key, first, last in apis]
    made = [
        MetadataResponsePartition(partition_index=number, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3])
        for number in range(partitions)
    ]
    with _Server({ApiKey.API_VERSIONS: bytes(ApiVersionsResponse(api_keys=listed).encode(_API_VERSIONS))}) as server:
        port = server.server_address[1]
        brokers = [MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port) for number in (1, 2, 3)]
        topics = [MetadataResponseTopic(name=name, partitions=made) for name in names]
        answer = MetadataResponse(brokers=brokers, cluster_id="many-topics", controller_id=1, topics=topics)
        server.answers[ApiKey.METADATA] = bytes(answer.encode(_METADATA))
        server.answers[ApiKey.DESCRIBE_LOG_DIRS] = bytes(_log_dirs(names, partitions).encode(_LOG_DIRS))
        server.answers[ApiKey.DESCRIBE_CONFIGS] = bytes(_protocol_version().encode(_CONFIGS))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield ManyTopics(f"127.0.0.1:{port}", server.asked)
        finally:
            server.shutdown()
            thread.join()


def _log_dirs(names: Sequence[str], partitions: int) -> DescribeLogDirsResponse:
    topics = [
        DescribeLogDirsTopic(
            name=name, partitions=[DescribeLogDirsPartition(partition_index=number, partition_size=place) for number in range(partitions)]
        )
        for place, name in enumerate(names)
    ]
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/data", topics=topics, total_bytes=2**40, usable_bytes=2**39)])


def _protocol_version() -> DescribeConfigsResponse:
    told = DescribeConfigsResourceResult(name="inter.broker.protocol.version", value="3.9-IV0")
    return DescribeConfigsResponse(results=[DescribeConfigsResult(configs=[told])])
