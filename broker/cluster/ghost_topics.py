"""Topics that this broker still knows and that are deleted: it was told of their end by nobody.

A controller tells a broker of deletions as long as that has a session. Whoever was away meanwhile, or whose controller died before it came
to that, is told of what there is, never of what there is not any more. So when the controller, or the broker's registration, is another
than before, what is known here is compared with the topics in the metadata store. If that has none that is to stay, a broker that has
just started has nothing more to wait for (`first_picture`). Called by `ControlRequests`, owned by `ClusterWiring`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from broker.request.services import Services
from controller.errors import StoreError
from controller.znodes.layout import DELETE_TOPICS, TOPICS

logger = logging.getLogger(__name__)


class GhostTopics:
    """See the module."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._looking: asyncio.Task[None] | None = None

    def on_other_controller(self) -> None:
        """Another controller speaks, or it speaks to another life of this broker. Looks once more when it was looking already."""
        services = self._services
        if not services.cluster.topics and services.first_picture.is_there:
            return
        before = self._looking
        if before is not None:
            before.cancel()
        self._looking = asyncio.get_running_loop().create_task(self._look(), name="ghost-topics")

    async def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking

    async def _look(self) -> None:
        services = self._services
        cluster = services.cluster
        # Taken before the store is asked: a topic is in the store before anybody is told of it.
        known = [image for name, image in cluster.topics.items() if name not in services.replica_manager.partitions]
        try:
            existing = set(await services.store.children(TOPICS))
            if not services.first_picture.is_there and existing.issubset(await services.store.children(DELETE_TOPICS)):
                services.first_picture.has_no_topics = True
                services.metadata_waits.notify()
        except StoreError as error:
            logger.warning("whether all known topics still exist cannot be found out (%s)", error)
            return
        ghosts = await services.replica_manager.forget_topics([image for image in known if image.name not in existing])
        if ghosts:
            logger.info("topics were deleted while nobody could tell this broker: %s", ", ".join(image.name for image in ghosts))
            services.metadata_waits.notify()
