"""Reads from the metadata store how many partitions the internal topic of a coordinator has.

Brokers learn of a partition when it gets its first leader. If they counted those only, a broker that starts before a partition has ever had
a leader would find another coordinator for most keys than a broker that starts afterwards. A broker that is elected before it has metadata
would count the configured number. So the store is read at the start, as by Apache Kafka, and whenever the metadata shows another topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeAlias

from ottla.controller.admin.stored_topics import StoredCount
from ottla.controller.errors import StoreError
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.coordination.partitions.owned import OwnedStates

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
"""Pause before the store is read again after it could not be, seconds."""

CountOf: TypeAlias = Callable[[str], Awaitable[StoredCount]]
"""The partitions that hold states, by the metadata store; none of a topic that does not exist. May raise StoreError, MalformedZNode."""


class StoredPartitions:
    """See the module."""

    def __init__(self, owned: OwnedStates[Any], count_of: CountOf) -> None:
        self._owned = owned
        self._count_of = count_of
        self._reading: asyncio.Task[None] | None = None
        self._reported = 0
        """The fixed number that was logged."""
        owned.on_other_topic = partial(self._read_again, self.read)
        owned.on_growth = partial(self._read_again, self._report_growth)

    async def read(self) -> None:
        """Read once. Raises StoreError."""
        topic = self._owned.topic
        try:
            count, is_fixed = await self._count_of(topic)
        except MalformedZNode as error:
            logger.error("topic %s: only the partitions that have had a leader count: %s", topic, error)
            return
        self._owned.learn(count, is_fixed=is_fixed)
        if is_fixed and count != self._reported:
            self._reported = count
            logger.warning("topic %s: partitions were added, which hold no states: those are in the first %d", topic, count)

    async def _report_growth(self) -> None:
        topic = self._owned.topic
        try:
            count, is_fixed = await self._count_of(topic)
        except MalformedZNode:
            is_fixed = False
        if is_fixed:
            self._reported = count
            logger.warning("topic %s: partitions were added, which hold no states: those stay in the first %d", topic, count)
        else:
            logger.error(
                "topic %s: partitions were added by another program. This broker counts them from its next start on. From then on most "
                "keys have another coordinator, which finds their stored state only if it leads their former partition, too. While brokers "
                "disagree, a key has two coordinators: restart all brokers at the same time", topic,
            )  # fmt: skip

    async def close(self) -> None:
        """Read no more."""
        self._owned.on_other_topic = self._owned.on_growth = lambda: None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _read_again(self, read: Callable[[], Awaitable[None]]) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._reading = asyncio.get_running_loop().create_task(self._repeat(read), name=f"partitions-of-{self._owned.topic}")

    async def _repeat(self, read: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await read()
            except StoreError as error:
                logger.warning("the partitions of topic %s cannot be counted (%s); trying again", self._owned.topic, error)
            await asyncio.sleep(RETRY_SECONDS)
