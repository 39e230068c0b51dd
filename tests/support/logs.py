"""Builders of partition logs, for tests that need one without a broker around it."""

from collections.abc import Callable, Mapping
from functools import cache

from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.log.context import LogContext
from ottla.storage.log.origins import AppendOrigin
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.pending_topic_id import make_durable
from ottla.storage.log.recovery import open_log
from ottla.storage.validation.batch import FIRST_VERSION_WITH_ZSTD, complete_validation, read_only_batch
from ottla.storage.validation.run import BatchRun
from tests.support.batches import a_batch
from tests.support.clocks import ManualClock
from tests.support.filesystems import MemoryFileSystem

T0 = TopicPartition("topic", 0)
LOG_DIR = "/data"


@cache
def _defaults() -> BrokerConfig:
    return BrokerConfig({})


class ManualScheduler:
    """Keeps what was scheduled until the test runs it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Callable[[], None], int]] = []

    def schedule_once(self, name: str, action: Callable[[], None], delay_ms: int) -> None:
        self.waiting.append((name, action, delay_ms))

    def run_all(self) -> None:
        """As if all delays were over."""
        waiting, self.waiting = self.waiting, []
        for _, action, _ in waiting:
            action()


def a_context(filesystem: FileSystem | None = None, clock: ManualClock | None = None) -> LogContext:
    """Ports for a log: everything in memory and under the test's control unless given."""
    return LogContext(filesystem or MemoryFileSystem(), clock or ManualClock(), ManualScheduler())


def a_config(**overrides: str | int) -> TopicConfig:
    """A topic's configuration; keys with underscores for dots."""
    return TopicConfig({name.replace("_", "."): str(value) for name, value in overrides.items()}, _defaults())


def a_topic_config(overrides: Mapping[str, str], broker: Mapping[str, str]) -> TopicConfig:
    """A topic's configuration on a broker with these properties."""
    return TopicConfig(overrides, BrokerConfig(broker))


def a_log(
    context: LogContext | None = None,
    *,
    clean: bool = True,
    log_dir: str = LOG_DIR,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    **config: str | int,
) -> PartitionLog:
    """The log of topic-0, opened in `context` (a new one in memory unless given), with recovery of everything unless `clean`."""
    return open_log(
        context or a_context(),
        T0,
        log_dir,
        a_config(**{"segment_index_bytes": 1200, **config}),  # a preallocated file in memory takes memory
        clean_shutdown=clean,
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
    )


def append(
    log: PartitionLog,
    batch: bytearray | None = None,
    *,
    epoch: int = 0,
    now_ms: int | None = None,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> BatchRun:
    """Appends a batch (of one record unless given) as the leader, a worker's part included; the run says where it went."""
    now = log.context.clock.now_ms() if now_ms is None else now_ms
    run = BatchRun(memoryview(a_batch() if batch is None else batch))
    read_only_batch(run, FIRST_VERSION_WITH_ZSTD)
    log.append(run, epoch, now, origin)
    if run.needs_worker:
        make_durable(log)
        run = complete_validation(run.detached(), log.rules, now, log.log_end_offset)
        log.append(run, epoch, now, origin)
    return run


def follow(log: PartitionLog, records: bytes | bytearray | memoryview, epoch: int, *, now_ms: int | None = None) -> BatchRun:
    """Appends what a leader has, in that epoch, once the log takes it; the run says where it went."""
    make_durable(log)
    run = BatchRun(memoryview(bytearray(records)))
    log.append(run, epoch, log.context.clock.now_ms() if now_ms is None else now_ms, AppendOrigin.REPLICATION)
    return run


def read_all(log: PartitionLog, start: int | None = None, max_bytes: int = 1 << 20) -> bytes:
    """Everything from `start` (the log start offset) to the log end, fetch by fetch."""
    offset = log.log_start_offset if start is None else start
    parts = []
    while (found := log.read(offset, max_bytes, log.log_end_offset, True)).region is not None:
        assert found.next_offset > offset
        parts.append(found.region.read())
        offset = found.next_offset
    return b"".join(parts)
