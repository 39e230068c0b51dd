"""Opens the remote store of a broker with tiered storage, and what reads from it (KIP-405).

The start asks the store before anything is written. A store that refuses the broker ends the start. So does one that cannot be reached,
unless this broker has had a store: then it starts degraded. Later such a fault leaves the topics writable, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.broker.remote.store_process import SettingsRefused, StoreProcess
from ottla.broker.remote.store_threads import StoreThreads
from ottla.broker.remote.store_watch import StoreWatch
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.log import LOG_DIRS
from ottla.config.keys.own import OTTLA_REMOTE_CHUNK_CACHE_BYTES, OTTLA_REMOTE_MEMORY_BYTES
from ottla.config.keys.tiered import (
    REMOTE_FETCH_MAX_WAIT_MS,
    REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES,
    REMOTE_LOG_READER_MAX_PENDING_TASKS,
    REMOTE_LOG_READER_THREADS,
    REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX,
)
from ottla.config.remote_store import StoreSettings, store_settings
from ottla.config.validation import log_dirs
from ottla.replication.reading.remote_read import RemoteReads
from ottla.replication.remote.byte_quota import FETCH, ByteQuota
from ottla.replication.remote.claimed_store import ClaimedStore, OtherOwner, check_owner
from ottla.replication.remote.counters import RemoteCounters
from ottla.storage.disk.clock import Clock, elapsed_ms
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.remote.chunk_cache import ChunkCache
from ottla.storage.remote.chunk_loads import ChunkLoads
from ottla.storage.remote.directory_store import DirectoryStore
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.held_chunks import LocalChunks
from ottla.storage.remote.index_cache import IndexCache, was_used_in
from ottla.storage.remote.lineage import is_in_lineage, with_records
from ottla.storage.remote.memory_budget import MemoryBudget
from ottla.storage.remote.ports import ANSWERS, UNREADABLE, RemoteStore, RemoteStoreError
from ottla.storage.remote.segment_reader import SegmentReader

if TYPE_CHECKING:
    from ottla.broker.remote.object_store import ObjectStore

logger = logging.getLogger(__name__)

YIELD_SECONDS: Final = 5.0
"""Time between two looks at the space that logs have left on the disk of the caches."""
PROBE_SECONDS: Final = 60.0
"""Time for the store's first answer at the start."""

_Result = TypeVar("_Result")


class RemoteStorage:
    """The store, its caches, and its reads. `store` is a RemoteStore; `budget` limits the memory of all transfers."""

    def __init__(
        self,
        config: BrokerConfig,
        file_system: FileSystem,
        executor: Executor,
        clock: Clock,
        access: Callable[[RemoteStore], RemoteStore] = lambda store: store,
        *,
        is_apart: bool = False,
    ) -> None:
        """`access` returns the store by which the configured one is used. Raises ConfigError for settings that no store can have.

        `is_apart` has the store work in a process of its own, on the real disk. Then `probe` may raise the same error.
        """
        self._config = config
        self._file_system = file_system
        self._executor = executor
        self._clock = clock
        self.settings = store_settings(config)
        self.budget = MemoryBudget(config[OTTLA_REMOTE_MEMORY_BYTES])
        self.quota = ByteQuota(config, FETCH, clock)
        self.counters = RemoteCounters()
        self._store_threads = StoreThreads()
        self.store = self._opened = access(StoreProcess(self.settings) if is_apart else self._open_store(self.settings))
        self._was_used = self._may_be_away = False
        self.watch = StoreWatch(self.store)
        self.indexes: IndexCache | None = None
        self.chunks: ChunkCache | None = None
        self.loads: ChunkLoads | None = None
        self._segments: SegmentReader | None = None
        self._yielding: asyncio.Task[None] | None = None

    async def probe(self, *, starts: bool = True) -> None:
        """Asks the store whether it is there and accepts this broker. Raises ConfigError with a line for the operator.

        With `starts` a broker that has had a store goes on if that does not answer. The first start makes the folder of a store in a
        directory. Later it is missing because the directory is not mounted, and copies would go below the mount point.
        """
        self._was_used = await self.in_thread(partial(was_used_in, self._file_system, log_dirs(self._config[LOG_DIRS])))
        self._may_be_away = starts and self._was_used
        await self._ask(self._first_answer(prepares=starts and not self._was_used))
        if self.settings.ignored:
            logger.warning("these keys of the remote store have no effect: %s", ", ".join(self.settings.ignored))

    async def claim(self, cluster_id: str) -> None:
        """Makes the store that of this cluster, if it has no owner. Raises ConfigError if it belongs to another one.

        If it does not answer, that is done later, before the first write.
        """
        if not self.watch.trouble:
            await self._ask(check_owner(self.store, cluster_id, cluster_id))
        self.store = self.watch.store = ClaimedStore(self._opened, cluster_id, is_ours=not self.watch.trouble)

    async def check_owner(self, cluster_id: str) -> None:
        """Raises ConfigError if the store belongs to another cluster: its segments would be mixed with those of this one."""
        await self._ask(check_owner(self.store, cluster_id))

    async def _first_answer(self, *, prepares: bool) -> None:
        if prepares and isinstance(self._opened, StoreProcess):
            await self._opened.prepare()
        elif prepares and isinstance(self._opened, DirectoryStore):
            await self._store_threads(self._opened.prepare)
        await self.store.probe()

    async def _ask(self, question: Awaitable[None]) -> None:
        """Raises ConfigError if the store is not one to start with. If it only does not answer, a broker that has had one goes on."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await question
                return
        except (RemoteStoreError, TimeoutError) as error:
            failure = error
        reason = str(failure) or f"no answer within {PROBE_SECONDS:.0f} s"
        is_open = not isinstance(self._opened, StoreProcess) or self._opened.was_open
        if self._may_be_away and is_open and not isinstance(failure, (*ANSWERS, OtherOwner)):
            logger.warning(
                "the remote store does not answer; local records are served, and copies, removals and old records wait for it: %s", reason
            )
            self.watch.begin_degraded(reason)
            return
        await self.store.close()
        if isinstance(failure, SettingsRefused | OtherOwner):
            raise ConfigError(reason)
        if self._was_used and self.settings.directory is not None:
            reason += "; mount it, or make this folder if it is to be another store than before"
        prefix = self._config[REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX]
        raise ConfigError(f"the remote store cannot be used: {reason}; check it, and the keys {prefix}*")

    async def open_reads(self, log_dir: str) -> RemoteReads:
        """Opens the caches in the first log directory. Raises ConfigError if the disk refuses them."""
        config = self._config
        self.indexes = IndexCache(
            self._file_system, log_dir, config[REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES], self.store, self.budget, self.in_thread
        )
        self.indexes.on_failure = self._count_failure
        self.chunks = ChunkCache(
            self._file_system,
            log_dir,
            config[OTTLA_REMOTE_CHUNK_CACHE_BYTES],
            self.store.chunk_bytes,
            self.budget,
            self.in_thread,
            lambda: elapsed_ms(self._clock),
        )
        try:
            await self.in_thread(self.indexes.prepare)
            await self.in_thread(self.chunks.prepare)
        except OSError as error:
            raise ConfigError(f"{error.filename or log_dir}: {error.strerror or error}; the caches of remote segments are there") from None
        config.on_change(self._on_change, (REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES,))
        self.loads = ChunkLoads(
            self._opened if isinstance(self._opened, StoreProcess) else LocalChunks(self.store, self._file_system, self.in_thread),
            self.chunks,
            self.budget,
            self.quota,
            self.counters.of,
            most_running=config[REMOTE_LOG_READER_THREADS],
            most_waiting=config[REMOTE_LOG_READER_MAX_PENDING_TASKS],
        )
        self._segments = SegmentReader(self._file_system, self.indexes, self.chunks, self.loads)
        self._yielding = asyncio.get_running_loop().create_task(self._yield_space(self._segments), name="space of the remote caches")
        return RemoteReads(self._segments, copy_of, lambda: config[REMOTE_FETCH_MAX_WAIT_MS])

    async def _yield_space(self, segments: SegmentReader) -> None:
        while True:
            await asyncio.sleep(YIELD_SECONDS)
            await segments.yield_space()

    def forget(self, entry: SegmentEntry) -> None:
        """Removes what the caches have of a segment that is deleted."""
        if self._segments is not None:
            self._segments.forget(entry)

    def _count_failure(self, entry: SegmentEntry, error: BaseException) -> None:
        self.counters.of(entry.id.partition.topic).remote_fetch_errors += 1
        if isinstance(error, UNREADABLE) and self.loads is not None:
            self.loads.note_wrong(entry)

    async def close(self) -> None:
        """Ends all reads, and leaves the store."""
        if self._yielding is not None:
            self._yielding.cancel()
            await asyncio.gather(self._yielding, return_exceptions=True)
        if self._segments is not None:
            await self._segments.close()
        await self.store.close()
        self._store_threads.close()

    def _open_store(self, settings: StoreSettings) -> DirectoryStore | ObjectStore:
        if settings.directory is not None:
            return DirectoryStore(self._file_system, settings.directory, self._store_threads)
        from ottla.broker.remote.object_store import ObjectStore  # obstore takes 16 ms, and is an extra
        from ottla.broker.remote.objects import open_objects

        return ObjectStore(open_objects(settings), settings, self._file_system, self.in_thread)

    def in_thread(self, work: Callable[[], _Result]) -> Awaitable[_Result]:
        """Runs work that blocks in a thread of this broker: a `Threads`."""
        return asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _on_change(self, _: frozenset[str]) -> None:
        if self.indexes is not None:
            self.indexes.limit = self._config[REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES]


def copy_of(log: PartitionLog, offset: int) -> SegmentEntry | None:
    """Finds the finished copy that has an offset of the log, and no records of another history. Raises MetadataNotReady."""
    epoch = log.leader_epochs.epoch_of(offset)
    if log.tier is None or epoch is None:
        return None
    epochs = with_records(log.leader_epochs.entries)
    return log.tier.find(epoch, offset, lambda entry: is_in_lineage(entry, log.log_end_offset, epochs))
