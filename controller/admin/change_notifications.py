"""Follows the sequential notifications that brokers create below one znode to report changes to each other.

Kafka's ZkNodeChangeNotificationListener. Notifications are kept for 15 minutes, so that a broker that was briefly
disconnected still finds them. Any broker that finds an older one removes it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla.controller.errors import BadArguments, NoAuth, NoNode, SessionExpired, StoreError
from ottla.controller.store.metadata_store import Delete, Get, MetadataStore, WatchedEvent, data_and_stat
from ottla.controller.znodes.layout import sequence_number
from ottla.controller.znodes.pauses import slices
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

EXPIRATION_MS = 15 * 60 * 1000
RETRY_SECONDS = 5.0
"""Pause before notifications are read again after the store has refused them, seconds."""

Report = Callable[[str, bytes | None], Awaitable[None]]
"""Path and body of a notification. May raise StoreError or MalformedZNode."""


class ChangeNotifications:
    """The listener of one broker. It runs in a task of its own."""

    def __init__(self, store: MetadataStore, clock: Clock, root: str, subject: str, report: Report) -> None:
        """`root` is the parent of the notifications, `subject` names in logs what changes."""
        self._store = store
        self._clock = clock
        self._root = root
        self._subject = subject
        self._report_to = report
        self._seen = -1
        self._watched_session = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._processing = asyncio.Lock()

    async def start(self) -> None:
        """Begin to listen. Earlier notifications are not reported: read the entities themselves after this call. If it fails, call it
        again."""
        self._seen = max((sequence_number(name) for name in await self._notifications()), default=-1)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"{self._subject}-changes")

    async def stop(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def on_new_session(self) -> None:
        """Look for notifications, because the watch ended with its session; none is missed, as their nodes still exist."""
        if self._watched_session != self._store.session_id:
            self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.process()
            except SessionExpired as error:
                logger.warning("changes of %s cannot be read (%s); waiting for the next session", self._subject, error)
            except StoreError as error:
                logger.warning("changes of %s cannot be read (%s); trying again in %g s", self._subject, error, RETRY_SECONDS)
                await self._try_again()
            except Exception:
                logger.exception("changes of %s cannot be read; trying again in %g s", self._subject, RETRY_SECONDS)
                await self._try_again()

    async def _try_again(self) -> None:
        await asyncio.sleep(RETRY_SECONDS)
        self._changed.set()

    async def process(self) -> None:
        """Report new notifications and remove old ones. Callers are serialized, so that no notification is reported
        twice."""
        async with self._processing:
            await self._process()

    async def undisturbed(self, read: Callable[[], Awaitable[None]]) -> None:
        """Await `read` while no notification is reported: what it reads is not older than what was reported."""
        async with self._processing:
            await read()

    async def _process(self) -> None:
        notified = await self._notifications()
        new = [name for name in notified if sequence_number(name) > self._seen]
        for some in slices(new):
            paths = [f"{self._root}/{name}" for name in some]
            outcomes = await self._store.pipeline([Get(path) for path in paths])
            for path, outcome in zip(paths, outcomes, strict=True):
                try:
                    await self._report_to(path, data_and_stat(outcome)[0])
                except NoNode:
                    logger.info("%s was already removed", path)
                except (MalformedZNode, BadArguments, NoAuth) as error:  # it would fail again, and hold up all later changes
                    logger.error("a change of %s is lost: %s", self._subject, error)
                except StoreError:
                    raise
                except Exception:  # a fault of this broker: no later change would be applied
                    logger.exception("a change of %s is lost: %s", self._subject, path)
                self._seen = sequence_number(path)
        if new:
            await self._purge(notified)

    async def _purge(self, notified: list[str]) -> None:
        """Remove old notifications. They are read from the oldest on, and only up to one that is kept."""
        now_ms = self._clock.now_ms()
        for paths in slices([f"{self._root}/{name}" for name in notified]):
            outcomes = await self._store.pipeline([Get(path) for path in paths])
            kept = [
                path
                for path, outcome in zip(paths, outcomes, strict=True)
                if not isinstance(outcome, NoNode) and now_ms - data_and_stat(outcome)[1].ctime_ms <= EXPIRATION_MS
            ]
            old = [path for path in paths if path not in kept]
            if old:
                await self._store.pipeline([Delete(path) for path in old])
            if kept:
                return

    async def _notifications(self) -> list[str]:
        """The names of the notifications in order; sets a watch."""
        self._watched_session = self._store.session_id
        names = await self._store.children(self._root, self._on_children)
        return sorted((name for name in names if name[-10:].isdigit()), key=sequence_number)

    def _on_children(self, _: WatchedEvent) -> None:
        self._changed.set()
