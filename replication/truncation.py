"""Where a follower cuts its log when its history differs from its leader's (KIP-101, KIP-279, KIP-595), and cutting it without a stall.

Called by `Fetcher`, which fetches nothing for the partition meanwhile. Kafka's AbstractFetcherThread.getOffsetTruncationState.

Invariant of a truncation in steps: after each step the log is a whole, shorter log that ends with a batch, so it may be left off anywhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from storage.partition_log import PartitionLog

logger = logging.getLogger(__name__)

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

BYTES_PER_STEP = 16 * 1024 * 1024
"""Cutting this much off a file takes 0.5 ms while it is dirty and 4 ms when the disk has it; each step adds a producer snapshot."""


class TruncationPoint(NamedTuple):
    """Where to cut. If not complete, the leader is to be asked again about the epoch that the log then ends with."""

    offset: int
    is_complete: bool


def truncation_point(log: PartitionLog, leader_epoch: int, leader_end_offset: int, initial_offset: int) -> TruncationPoint:
    """Where `log` parts from a leader that says: the greatest epoch up to your last one is `leader_epoch`, it ends at `leader_end_offset`.

    `initial_offset` is where to cut when the leader knows nothing of such epochs: the high watermark, for a log that has no epochs.
    """
    if leader_end_offset == UNDEFINED_OFFSET:
        return TruncationPoint(initial_offset, True)
    log_end_offset = log.log_end_offset
    if leader_epoch == UNDEFINED_EPOCH:
        return TruncationPoint(min(leader_end_offset, log_end_offset), True)
    epoch, end_offset = log.end_offset_for_epoch(leader_epoch)
    if epoch == UNDEFINED_EPOCH or end_offset == UNDEFINED_OFFSET:
        # Nothing is known here of epochs that old; the leader's epoch is below the one that was asked about, so its end is safe to take.
        return TruncationPoint(min(leader_end_offset, log_end_offset), True)
    if epoch != leader_epoch:
        return TruncationPoint(min(end_offset, log_end_offset), False)
    return TruncationPoint(min(end_offset, leader_end_offset, log_end_offset), True)


async def truncate(log: PartitionLog, offset: int, is_current: Callable[[], bool]) -> bool:
    """Cut `log` at `offset`, a piece per turn of the event loop if much goes; False when `is_current` said no between two pieces.

    Raises LogDirFailure.
    """
    if offset < log.high_watermark:
        logger.warning(
            "%s is truncated to offset %d, below its high watermark %d: what consumers have seen is gone with a leader that was elected "
            "without it (unclean.leader.election.enable), or had an older one",
            log.topic_partition, offset, log.high_watermark,
        )  # fmt: skip
    for cut in list(_steps(log, offset)):
        log.truncate_to(cut)
        await asyncio.sleep(0)
        if not is_current():
            return False
    log.truncate_to(offset)
    return True


def _steps(log: PartitionLog, offset: int) -> Iterator[int]:
    """Where to cut before the cut at `offset`, descending, each where a batch ends. None when all goes in one step."""
    segment = log.segments.floor(offset)
    if segment is None or offset >= log.log_end_offset:
        return
    position = segment.locate(offset)
    if position is None or segment.size - position <= BYTES_PER_STEP:
        return
    last = log.log_end_offset
    following = log.segments.higher(segment.base_offset)
    if following is not None:
        last = following.base_offset
        yield last
    for end in range(segment.size - BYTES_PER_STEP, position, -BYTES_PER_STEP):
        # The index names the last offset of batches: behind one of those a cut leaves whole batches, and nothing missing at the end.
        cut = segment.offset_index.lookup_position(end).offset + 1
        if offset < cut < last:
            last = cut
            yield cut
