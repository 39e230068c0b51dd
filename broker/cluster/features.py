"""Follows the features that the cluster has finalized: the znode /feature (KIP-584). Kafka's FinalizedFeatureChangeListener.

The server reads the node before the broker registers. A level that this release does not support ends the broker, at its start and later:
other members may already use a protocol or a format that it does not know. So does a node that cannot be read at the start. If it becomes
malformed later, the broker keeps the levels that it knows, and reads the node again and again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from ottla.broker.security.rereading import Rereading
from ottla.controller.errors import NoNode
from ottla.controller.store.metadata_store import Exists, Get, MetadataStore, WatchedEvent, data_and_stat
from ottla.controller.znodes.layout import FEATURE, decode_feature
from ottla.protocol import features

logger = logging.getLogger(__name__)

NO_EPOCH: Final = -1
"""The epoch of a cluster without /feature, and of one whose features are not versioned."""


class UnsupportedFeatures(Exception):
    """The cluster has finalized features that this release does not support; the text is one line for the operator."""


class FinalizedFeatures:
    """The finalized levels, by feature."""

    def __init__(self, store: MetadataStore, on_unsupported: Callable[[], None]) -> None:
        """`on_unsupported` ends the broker. It is called, after a line in the log, when a level that it does not support is finalized."""
        self._store = store
        self._on_unsupported = on_unsupported
        self._callbacks: list[Callable[[], None]] = []
        self._reading = asyncio.Lock()
        self._rereading = Rereading("finalized features", self._read_or_end)
        self._was_read = asyncio.Event()
        """Set, and replaced, whenever the node was read."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.levels: Mapping[str, int] = {}
        self.epoch = NO_EPOCH
        """The version of the znode, which grows with every change."""

    def level(self, name: str) -> int:
        """The finalized level of a feature; 0 if it is not finalized."""
        return self.levels.get(name, 0)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback` called whenever levels have changed."""
        self._callbacks.append(callback)

    async def load(self) -> None:
        """Read the levels, and follow them from now on. Raises UnsupportedFeatures, MalformedZNode, StoreError."""
        await self._read()

    async def reload(self) -> None:
        """Read the levels again now: after a new session, or to see an own write. A failure is repeated later."""
        await self._rereading.begin()

    def report_raisable(self) -> None:
        """Log the features whose finalized level is below the highest that this release supports."""
        behind = {name: highest for name, highest in features.IMPLEMENTED.items() if self.level(name) < highest}
        if behind:
            logger.info("this release supports %s, which the cluster has not finalized: run `ottla features upgrade`", _listed(behind))

    async def seen(self, epoch: int, timeout_ms: int) -> bool:
        """Wait until the levels with this epoch, or later ones, were read. False if the time is over first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0, timeout_ms) / 1000):
                while self.epoch < epoch:
                    await self._was_read.wait()
                return True
        return False

    async def close(self) -> None:
        """Read no more."""
        await self._rereading.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_event(self, _: WatchedEvent) -> None:
        task = asyncio.get_running_loop().create_task(self.reload(), name="finalized-features")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_or_end(self) -> None:
        try:
            await self._read()
        except UnsupportedFeatures as reason:
            logger.error("%s; this broker ends", reason)
            self._on_unsupported()

    async def _read(self) -> None:
        async with self._reading:  # of two results the later one counts
            _, found = await self._store.pipeline([Exists(FEATURE, self._on_event), Get(FEATURE)])
            levels: Mapping[str, int] = {}
            epoch = NO_EPOCH
            if not isinstance(found, NoNode):
                data, stat = data_and_stat(found)
                node = decode_feature(data)
                if node.is_enabled:
                    levels, epoch = node.features, stat.version
            if unknown := features.unsupported(levels):
                raise UnsupportedFeatures(_reason(unknown))
            before, self.levels, self.epoch = self.levels, levels, epoch
        self._was_read.set()
        self._was_read = asyncio.Event()
        if levels != before:
            logger.info("finalized features: %s (epoch %d)", _listed(levels) or "none", epoch)
            for callback in self._callbacks:
                callback()


def _listed(levels: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={level}" for name, level in sorted(levels.items()))


def _reason(unknown: Mapping[str, int]) -> str:
    supported = _listed(features.IMPLEMENTED) or "no feature"
    return (
        f"the cluster has finalized {_listed(unknown)}, but this release supports {supported}: "
        "start a newer release, or lower the features (ottla features downgrade)"
    )
