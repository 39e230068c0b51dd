"""Closes all logs of a log directory when the broker stops, so that the next start finds nothing to check.

Called by `LogManager.shutdown`, when nothing else runs. A segment with unflushed data has five files to sync, each of which waits for the
disk: 10,000 segments take minutes on a busy disk. So from `MANY_SEGMENTS` on the whole file system is synced, before the logs are closed
and once more afterwards, and the logs do not sync themselves.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.pending_topic_id import make_durable

log = logging.getLogger(__name__)

MANY_SEGMENTS = 100
CLOSING_THREADS = 4
"""Smallest number of threads: they wait for the disk, which combines concurrent syncs."""


def close_logs(filesystem: FileSystem, log_dir: str, logs: Sequence[PartitionLog], threads: int) -> bool:
    """Makes the logs of `log_dir` durable and closes them; False if that failed for some. Blocks; raises OSError."""
    to_flush = sum(len(each.segments.between(each.recovery_point, each.log_end_offset)) for each in logs if _is_dirty(each))
    syncs_all = to_flush >= MANY_SEGMENTS and filesystem.sync_everything(log_dir)
    with ThreadPoolExecutor(max(threads, CLOSING_THREADS), thread_name_prefix=f"log-closing-{log_dir}") as pool:
        closed = list(pool.map(_close if syncs_all else _flush_and_close, logs))
    if syncs_all:
        filesystem.sync_everything(log_dir)
        for each, is_closed in zip(logs, closed, strict=True):
            if is_closed:
                each.flushes.advance(each.log_end_offset)
    return all(closed)


def _is_dirty(each: PartitionLog) -> bool:
    return each.recovery_point < each.log_end_offset


def _flush_and_close(each: PartitionLog) -> bool:
    return _close(each, flush=True)


def _close(each: PartitionLog, *, flush: bool = False) -> bool:
    try:
        each.truncations.finish()
        make_durable(each)  # after a clean stop nothing would do so any more
        if flush:
            each.flush()
        each.close(sync=flush)
    except LogDirFailure as failure:
        log.error("%s: not closed properly, the next start will check it: %s", each.topic_partition, failure)
        return False
    except Exception:  # damage in its files: the other logs must be closed all the same
        log.exception("%s: not closed properly, the next start will check it", each.topic_partition)
        return False
    return True
