"""Removes topics from the metadata cache whose deletion was never reported to this broker.

A controller reports deletions only to brokers with a session. A broker that was disconnected, or whose controller died
before it sent the report, later receives existing topics only, never the deleted ones. So when the controller or the
broker's registration changes, the cached topics are compared with those in the metadata store. With ZooKeeper topics with
replicas here are left out, because their deletion waits for this broker. If the store has no
topics that remain, a broker that has just started need not wait for any (`first_metadata`). Called by `ControlRequests`,
owned by `ClusterWiring`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from ottla.broker.request.first_metadata import FirstMetadata
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.controller.errors import StoreError
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.layout import DELETE_TOPICS, TOPICS
from ottla.replication.control.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""Pause before the metadata store is asked again after it could not answer, seconds."""


class MissedDeletions:
    """See the module."""

    def __init__(self, store: MetadataStore, waits: MetadataWaits, first_metadata: FirstMetadata, replicas: ReplicaManager) -> None:
        self._store = store
        self._waits = waits
        self._first_metadata = first_metadata
        self._replicas = replicas
        self._looking: asyncio.Task[None] | None = None

    def on_other_controller(self) -> None:
        """Another controller sends requests, or the controller sends to another incarnation of this broker: restart the
        comparison."""
        if not self._replicas.cluster.topics and self._first_metadata.is_there:
            return
        before = self._looking
        if before is not None:
            before.cancel()
        self._looking = asyncio.get_running_loop().create_task(self._look(), name="missed-deletions")

    async def close(self) -> None:
        """Stop the comparison."""
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking

    async def _look(self) -> None:
        # Without another attempt the topics would stay until the controller or the registration changes the next time.
        while True:
            if await self._forget_missed():
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _forget_missed(self) -> bool:
        """Compare once; False if the store could not be asked."""
        manager, store, first_metadata = self._replicas, self._store, self._first_metadata
        # Taken before the store is read: a topic is in the store before brokers receive it.
        known = [image for name, image in manager.cluster.topics.items() if manager.frees_names or name not in manager.partitions]
        try:
            existing = set(await store.children(TOPICS))
            if not first_metadata.is_there and existing.issubset(await store.children(DELETE_TOPICS)):
                first_metadata.has_no_topics = True
                self._waits.notify()
        except StoreError as error:
            logger.warning("cannot check whether all known topics still exist (%s); trying again in %g s", error, RETRY_SECONDS)
            return False
        missed = await manager.forget_topics([image for image in known if image.name not in existing])
        if missed:
            logger.info("removed topics whose deletion was not reported to this broker: %s", ", ".join(image.name for image in missed))
            self._waits.notify()
        return True
