"""Reads from the metadata store how many partitions the internal topic of a coordinator has.

Brokers learn of a partition when it gets its first leader. If they counted those only, a broker that starts before a partition has ever had
a leader would find another coordinator for most keys than a broker that starts afterwards. A broker that is elected before it has metadata
would count the configured number. So the store is read at the start, as by Apache Kafka, and whenever the metadata shows another topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, TypeAlias

from ottla.controller.errors import StoreError
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.coordination.partitions.owned import OwnedStates

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
"""Pause before the store is read again after it could not be, seconds."""

PartitionsOf: TypeAlias = Callable[[str], Awaitable[Collection[int]]]
"""The partitions that a topic has in the metadata store; none of a topic that does not exist. May raise StoreError, MalformedZNode."""


class StoredPartitions:
    """See the module."""

    def __init__(self, owned: OwnedStates[Any], partitions_of: PartitionsOf) -> None:
        self._owned = owned
        self._partitions_of = partitions_of
        self._reading: asyncio.Task[None] | None = None
        owned.on_other_topic = self._on_other_topic

    async def read(self) -> None:
        """Read once. Raises StoreError."""
        try:
            partitions = await self._partitions_of(self._owned.topic)
        except MalformedZNode as error:
            logger.error("topic %s: only the partitions that have had a leader count: %s", self._owned.topic, error)
        else:
            self._owned.learn(len(partitions))

    async def close(self) -> None:
        """Read no more."""
        self._owned.on_other_topic = lambda: None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _on_other_topic(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._reading = asyncio.get_running_loop().create_task(self._repeat(), name=f"partitions-of-{self._owned.topic}")

    async def _repeat(self) -> None:
        while True:
            try:
                return await self.read()
            except StoreError as error:
                logger.warning("the partitions of topic %s cannot be counted (%s); trying again", self._owned.topic, error)
            await asyncio.sleep(RETRY_SECONDS)
