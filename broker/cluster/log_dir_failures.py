"""Reports a failed log directory of this broker to the controller, so that the cluster learns which replicas are
offline.

Kafka's ReplicaManager.propagateLogDirFailure in ZooKeeper mode: creates a sequential znode under
/log_dir_event_notification. The active controller then sends this broker its replicas again, and elects other leaders
where it can. Until it does, clients are sent here. So a report that the metadata store refuses is repeated; the file of
an embedded store may be on the disk that is full. After a new session the controller sends all replicas anyway.
"""

import asyncio
import logging
from contextlib import suppress

from ottla.broker.loop.background import finish
from ottla.controller.errors import SessionExpired, StoreError
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.changes import encode_log_dir_event
from ottla.controller.znodes.layout import LOG_DIR_EVENT_PREFIX

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""Pause before a report is repeated that the store has refused, seconds."""
CLOSE_SECONDS = 1.0
"""Time for reports in progress when the broker stops, seconds. The end of its session tells the controller more."""


class LogDirFailures:
    """The replica manager calls `report` on the loop."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = asyncio.Event()

    def report(self) -> None:
        """A directory failed."""
        task = asyncio.get_running_loop().create_task(self._report(), name="report-log-dir-failure")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _report(self) -> None:
        is_logged = False
        while not self._is_closed.is_set():
            try:
                await self._store.create(LOG_DIR_EVENT_PREFIX, encode_log_dir_event(self._broker_id), sequential=True)
            except SessionExpired:
                return
            except StoreError as error:
                if not is_logged:
                    is_logged = True
                    logger.error(
                        "the failed log directory cannot be reported to the controller, and clients are still sent here for its "
                        "partitions: %s; trying again every %g s",
                        error, RETRY_SECONDS,
                    )  # fmt: skip
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS):
                        await self._is_closed.wait()
            else:
                return

    async def close(self) -> None:
        """Finish reports in progress; those that the store refuses are given up. Without a connection to the metadata store they would wait
        forever, and the logs would stay open."""
        self._is_closed.set()
        await finish(self._tasks, CLOSE_SECONDS)
