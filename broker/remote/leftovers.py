"""Removes what topics that do not exist any more have left in the remote store.

The leader of a partition removes its copies when the topic is deleted. If it is offline at that moment, they stay. So the broker of the
active controller lists the store from time to time. Copies of topics that the metadata store does not have go at a listing that is an
interval later than the first one. That one has a line in the log, so that there is time to stop the broker if the metadata store is wrong.

Copies of a partition stay if `__remote_log_metadata` has no entry of it. Another cluster may have written them, with a `key.prefix` that
begins alike, or before the store had an owner. Or they are those of a cluster that was lost, and wait for `ottla remote restore`. Copies of
a topic also stay if this broker has a log of it, also one that was set aside (`cluster.stray_replicas`): the metadata store may be an old
copy, which does not know the topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final

from ottla.broker.remote.gone_topics import Gone, GoneTopics
from ottla.broker.remote.stored_names import StoredName, stored_name
from ottla.controller.errors import StoreError
from ottla.pauses import pause
from ottla.protocol.uuid import from_text, to_text
from ottla.replication.remote.remote_log_manager import RemoteLogManager
from ottla.storage.disk.clock import Clock
from ottla.storage.remote.entries import SegmentEntry, TopicIdPartition
from ottla.storage.remote.ports import RemoteStore, RemoteStoreError

logger = logging.getLogger(__name__)

FIRST_SECONDS: Final = 3600.0
"""Time from the start to the first listing at most."""
MOST_COPIES: Final = 100_000
"""Copies that are removed after one listing."""
_LEAST: Final = 0.9
"""Part of the interval between the first listing and the removal at least. The next listing may begin a moment early by the wall clock."""
_NAMED: Final = 20
"""Topics in a line of the log."""

TopicIdOf = Callable[[str], Awaitable[bytes | None]]
"""Returns the id of a topic, zeros for one without an id, None for one that does not exist. Raises StoreError."""


ClusterIdOf = Callable[[], Awaitable[str | None]]
"""Returns the id of the cluster that the metadata store has now, None if it has none. Raises StoreError."""


class Leftovers:
    """See the module."""

    def __init__(
        self,
        store: RemoteStore,
        tasks: RemoteLogManager,
        cluster_id: str,
        topic_id_of: TopicIdOf,
        cluster_id_of: ClusterIdOf,
        local_topic_ids: Callable[[], Awaitable[Collection[bytes]]],
        is_controller: Callable[[], bool],
        memory: GoneTopics,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        clock: Clock,
        interval_seconds: float,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._cluster_id = cluster_id
        self._topic_id_of = topic_id_of
        self._cluster_id_of = cluster_id_of
        self._local_topic_ids = local_topic_ids
        self._is_controller = is_controller
        self._memory = memory
        self._in_thread = in_thread
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._seen: Gone | None = None
        """The topics that the listing before has shown to be gone. None before the first one."""
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks once in an interval from now on."""
        self._looking = asyncio.get_running_loop().create_task(self._repeat(), name="leftovers in the remote store")

    async def close(self) -> None:
        """Looks no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _repeat(self) -> None:
        wait = min(FIRST_SECONDS, self._interval_seconds)
        while True:
            await asyncio.sleep(wait)
            wait = self._interval_seconds
            if not self._is_controller():
                continue
            try:
                await self.look()
            except Exception as error:
                trace = None if isinstance(error, RemoteStoreError) else error
                logger.warning(
                    "the remote store could not be searched for copies of deleted topics, which is tried again later: %s",
                    error,
                    exc_info=trace,
                )

    async def look(self) -> None:
        """Lists the store once. Raises RemoteStoreError."""
        owner = await self._store.owner()
        if owner != self._cluster_id:
            logger.error("the remote store belongs to the cluster %s, and not to %s: nothing is removed there", owner, self._cluster_id)
            return
        local = await self._local_topic_ids()
        seen: Gone = await self._in_thread(self._memory.load) if self._seen is None else self._seen
        now_ms = self._clock.now_ms()
        is_gone: dict[tuple[str, str], bool] = {}
        kept: set[tuple[str, str]] = set()
        found: set[StoredName] = set()
        async for each in self._store.list(""):
            await pause()
            name = stored_name(each.name)
            if name is None:
                continue
            topic = name.topic, name.topic_id
            if topic not in is_gone:
                is_gone[topic] = await self._is_gone(*topic)
                if is_gone[topic] and from_text(name.topic_id) in local:
                    is_gone[topic] = False
                    kept.add(topic)
            is_old = topic in seen and now_ms - seen[topic] >= _LEAST * self._interval_seconds * 1000
            is_due = is_gone[topic] and is_old and len(found) < MOST_COPIES
            if is_due and name.topic_id_partition not in self._tasks.strange:
                found.add(name.copy)
        gone = {topic for topic, answer in is_gone.items() if answer}
        _report(kept, "The metadata store does not have topics of which this broker has logs; their copies in the remote store stay: %s")
        _report(gone - seen.keys(), "Copies of topics that do not exist are in the remote store, and go after the next listing: %s")
        self._seen = {topic: seen.get(topic, now_ms) for topic in gone}
        if self._seen != seen:
            await self._in_thread(partial(self._memory.save, self._seen))
        await self._remove(found)

    async def _remove(self, found: set[StoredName]) -> None:
        copies: dict[TopicIdPartition, list[SegmentEntry]] = {}
        while found:  # emptied here, since to free all at once would take long
            await pause()
            each = found.pop()
            copies.setdefault(each.topic_id_partition, []).append(each.entry())
        _report(
            {(each.topic, to_text(each.topic_id)) for each in copies},
            "Copies of topics that do not exist are removed, where the metadata know their partitions: %s",
        )
        for partition, entries in copies.items():
            await pause()
            self._tasks.on_leftovers(partition, entries, partial(self._is_gone, partition.topic, to_text(partition.topic_id)))

    async def _is_gone(self, topic: str, topic_id: str) -> bool:
        """Raises RemoteStoreError if the metadata store does not answer, or is not that of this cluster any more: it may know no topic."""
        try:
            known = await self._topic_id_of(topic)
            if known is not None and (not any(known) or to_text(known) == topic_id):
                return False
            cluster_id = await self._cluster_id_of()
        except StoreError as error:
            raise RemoteStoreError(str(error)) from error
        if cluster_id != self._cluster_id:
            raise RemoteStoreError(f"the metadata store is that of the cluster {cluster_id}, and not of {self._cluster_id}")
        return True


def _report(topics: set[tuple[str, str]], line: str) -> None:
    if topics:
        named = [f"{topic} ({topic_id})" for topic, topic_id in sorted(topics)[:_NAMED]]
        logger.warning(line, ", ".join(named) + (f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""))
