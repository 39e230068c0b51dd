"""Puts the metadata of remote segments together from the parts of a broker."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

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

    from ottla.config.remote_metadata import MetadataSettings
    from ottla.controller.admin.topic_admin import TopicAdmin
    from ottla.replication.ports.cluster import MetadataCache
    from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)


class NewProducerIds(Protocol):
    """Gives producer ids of this broker's block."""

    def next_now(self) -> int | None:
        """Returns a new id, or None while there is none."""

    def when_next(self, then: Callable[[], None]) -> None:
        """Calls `then` when there is one, or the controller gave no block."""


def topic_metadata(
    settings: MetadataSettings,
    cluster: MetadataCache,
    peers: MetadataPeers,
    clock: Clock,
    snapshots: SnapshotFiles,
    topic_admin: TopicAdmin,
    producer_ids: NewProducerIds,
    while_loading: Callable[[], AbstractContextManager[None]],
) -> TopicMetadata:
    """Returns the metadata of a broker, which is to be started and closed."""
    if settings.ignored:
        logger.info("without effect here, because this broker is no client of Java: %s", ", ".join(settings.ignored))
    topic = MetadataTopic(settings, cluster, topic_admin)
    reader = MetadataReader(settings.partitions, cluster, topic, peers, snapshots, while_loading)
    writer = MetadataWriter(cluster, peers, clock, partial(_next_producer_id, producer_ids))
    return TopicMetadata(reader, writer, settings.consume_wait_ms)


async def _next_producer_id(ids: NewProducerIds) -> int:
    """Allocates a producer id of this broker's block. Raises PeerUnavailable."""
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
