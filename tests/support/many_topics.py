"""Plays the broker of a cluster with any topics, also those that no real one would make: it answers ApiVersions and Metadata alone."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from protocol.api_keys import ApiKey
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic

_HEAD: Final = struct.Struct(">hhi")
_API_VERSIONS: Final = 3
_METADATA: Final = 12


class _Connection(socketserver.BaseRequestHandler):
    request: socket.socket
    server: _Server

    def handle(self) -> None:
        """Answer until the client leaves."""
        with suppress(ConnectionError):
            while size := self._taken(4):
                key, _, correlation_id = _HEAD.unpack_from(self._taken(int.from_bytes(size, "big")))
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


@contextmanager
def a_broker_of_topics(names: Sequence[str], partitions: int) -> Iterator[str]:
    """The address of a broker whose topics have these names, and so many partitions with three replicas each."""
    apis = ((ApiKey.API_VERSIONS, 0, _API_VERSIONS), (ApiKey.METADATA, _METADATA, _METADATA))
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
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.shutdown()
            thread.join()
