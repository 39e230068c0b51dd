"""Reads and writes `__remote_log_metadata` of a running cluster from the test's own process, as one more broker would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from ottla.broker.loop.clock import SystemClock
from ottla.broker.network.peer_connection import PeerConnections
from ottla.broker.remote.metadata.peers import MetadataPeers
from ottla.broker.remote.metadata.reader import MetadataReader
from ottla.broker.remote.metadata.snapshot_files import SnapshotFiles
from ottla.broker.remote.metadata.topic import MetadataTopic
from ottla.broker.remote.metadata.topic_metadata import TopicMetadata
from ottla.broker.remote.metadata.writer import MetadataWriter
from ottla.config.remote_metadata import MetadataSettings
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.update_metadata import UpdateMetadataPartitionState
from ottla.replication.ports.cluster import EndPoint, LiveBroker, MetadataCache, TopicImage
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote.metadata.log import METADATA_TOPIC
from tests.support.wire_client import a_wire_client

LISTENER = "PLAINTEXT"
_CONSUME_WAIT_MS = 30_000


def cluster_at(port: int, *topics: str) -> MetadataCache:
    """The cluster's brokers and topics, as the broker at this port tells them."""
    with a_wire_client(port) as client:
        response = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics]), 12)
    found = MetadataCache()
    for broker in response.brokers:
        endpoint = EndPoint(broker.host, broker.port, LISTENER, 0)
        found.brokers[broker.node_id] = LiveBroker(broker.node_id, {LISTENER: endpoint}, None)
    for topic in response.topics:
        assert not topic.error_code, topic
        states = {
            each.partition_index: UpdateMetadataPartitionState(
                topic_name=topic.name, partition_index=each.partition_index, leader=each.leader_id, leader_epoch=each.leader_epoch
            )
            for each in topic.partitions
        }
        found.topics[topic.name] = TopicImage(topic.name, topic.topic_id, states)
    return found


@asynccontextmanager
async def an_observer(port: int, directory: Path, partition_count: int) -> AsyncIterator[TopicMetadata]:
    """The metadata of the cluster with a broker at this port, whose topic is there. Snapshots are in the directory."""
    cluster, clock = cluster_at(port, METADATA_TOPIC), SystemClock()
    settings = MetadataSettings(partition_count, 1, -1, _CONSUME_WAIT_MS, 100, LISTENER, ())
    peers = MetadataPeers(PeerConnections(), cluster, LISTENER, 77)

    def producer_id() -> int:
        with a_wire_client(port) as client:
            return client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4).producer_id

    async def next_producer_id() -> int:
        return await asyncio.to_thread(producer_id)

    with ThreadPoolExecutor(1) as workers:
        snapshots = SnapshotFiles(str(directory), RealFileSystem(), workers, clock, "observed", partition_count)
        reader = MetadataReader(partition_count, cluster, MetadataTopic(settings, cluster, None), peers, snapshots)
        metadata = TopicMetadata(reader, MetadataWriter(cluster, peers, clock, next_producer_id), _CONSUME_WAIT_MS)
        metadata.start()
        try:
            yield metadata
        finally:
            await metadata.close()
