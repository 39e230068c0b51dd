"""Appends batches that `Partition.append` has left, because they need work first: long checks, recompression, conversion, or a durable
topic id.

The work may block, so the caller decides where it is done: `Produce` has worker threads, a coordinator does it at once for its small
batches. Messages of formats 0 and 1 contain their offsets, in format 0 also inside a compressed message. Therefore a batch for a log of
such a format is converted for the current log end offset, and once more if the log has grown meanwhile.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeAlias

from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from ottla.replication.leader.partition import Partition
from ottla.storage.disk.clock import Clock
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.pending_topic_id import make_durable
from ottla.storage.validation.batch import complete_validation
from ottla.storage.validation.run import BatchRun

Completion: TypeAlias = Generator[Callable[[int], BatchRun], BatchRun, BatchRun]


def complete_and_append(left: BatchRun, partition: Partition, required_acks: int, origin: int, clock: Clock) -> Completion:
    """Append the batch of `left`, a run with a buffer of its own. Returns the appended run.

    Yields work for any thread, and takes its result. The work gets the bytes to which the records may expand, and raises LogDirFailure and
    the errors of `complete_validation`. The generator raises those of `Partition.append`, which checks the leadership again.
    """
    while True:
        log = partition.log
        run = yield partial(_complete, left, log, clock.now_ms(), log.log_end_offset)
        partition.append(run, required_acks, clock.now_ms(), origin)
        if not run.needs_worker:
            return run


def _complete(left: BatchRun, log: PartitionLog, now_ms: int, base_offset: int, max_bytes: int) -> BatchRun:
    make_durable(log)
    return complete_validation(left, log.rules, now_ms, base_offset, max_bytes)


def append_at_once(left: BatchRun, partition: Partition, required_acks: int, origin: int, clock: Clock) -> BatchRun:
    """`complete_and_append`, with the work done here. Blocks."""
    completion = complete_and_append(left, partition, required_acks, origin, clock)
    work = next(completion)
    while True:
        try:
            work = completion.send(work(MAX_DECOMPRESSED_BYTES))
        except StopIteration as end:
            appended: BatchRun = end.value
            return appended
