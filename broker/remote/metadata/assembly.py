"""Puts the metadata of remote segments together from the parts of a broker."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.remote.metadata.peers import MetadataPeers
from ottla.broker.remote.metadata.reader import MetadataReader
from ottla.broker.remote.metadata.snapshot_files import SnapshotFiles
from ottla.broker.remote.metadata.topic import MetadataTopic
from ottla.broker.remote.metadata.topic_metadata import TopicMetadata
from ottla.broker.remote.metadata.writer import MetadataWriter
from ottla.replication.ports.peer import PeerUnavailable

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ottla.broker.request.services import Services
    from ottla.config.remote_metadata import MetadataSettings
    from ottla.replication.ports.peer import Connect
    from ottla.storage.disk.filesystem import FileSystem

logger = logging.getLogger(__name__)


def topic_metadata(
    services: Services,
    settings: MetadataSettings,
    connect: Connect,
    filesystem: FileSystem,
    log_dir: str,
    while_loading: Callable[[], AbstractContextManager[None]],
) -> TopicMetadata:
    """Returns the metadata of a broker, which is to be started and closed. `log_dir` is the first of `log.dirs`."""
    if settings.ignored:
        logger.info("without effect here, because this broker is no client of Java: %s", ", ".join(settings.ignored))
    cluster, clock = services.metadata, services.clock
    topic = MetadataTopic(settings, cluster, services.administration.topic_admin)
    peers = MetadataPeers(connect, cluster, settings.listener_name, services.broker_id)
    snapshots = SnapshotFiles(log_dir, filesystem, services.workers, clock, services.cluster_id, settings.partitions)
    reader = MetadataReader(settings.partitions, cluster, topic, peers, snapshots, while_loading)
    writer = MetadataWriter(cluster, peers, clock, partial(_next_producer_id, services))
    return TopicMetadata(reader, writer, settings.consume_wait_ms)


async def _next_producer_id(services: Services) -> int:
    """Allocates a producer id of this broker's block. Raises PeerUnavailable."""
    ids = services.cluster.producer_ids
    found = ids.next_now()
    if found is None:
        known: Future[None] = asyncio.get_running_loop().create_future()

        def on_block() -> None:
            if not known.done():
                known.set_result(None)

        ids.when_next(on_block)
        await known
        found = ids.next_now()
    if found is None:
        raise PeerUnavailable("the controller gave no block of producer ids")
    return found
