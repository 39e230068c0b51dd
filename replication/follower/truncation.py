"""Truncates a follower's log where it diverges from its leader's (KIP-101, KIP-279, KIP-595), without blocking the loop.

`truncation_point` is Kafka's AbstractFetcherThread.getOffsetTruncationState; `truncate` truncates. A `Fetcher` calls the other functions,
one after another, and fetches nothing meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.pauses import pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.follower import fetcher_failures
from ottla.replication.follower.fetch_session import FollowedPartition, Found
from ottla.replication.follower.leader_requests import EARLIEST, LATEST, LeaderRefused, end_offsets_of_epochs, list_offset
from ottla.replication.ports.peer import PeerUnavailable
from ottla.replication.ports.thread_work import done
from ottla.storage.errors import UnexpectedAppendOffset
from ottla.storage.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from ottla.replication.follower.fetcher import Fetcher

logger = logging.getLogger(__name__)

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
CUT_AT_ONCE = 50
"""Logs that are truncated at the same time. All of them wait for the same write of the checkpoints, some fsyncs."""


class TruncationPoint(NamedTuple):
    """Offset for a truncation. If it is not complete, the follower has to request the end of the last epoch left in the log from the
    leader."""

    offset: int
    is_complete: bool


def truncation_point(log: PartitionLog, leader_epoch: int, leader_end_offset: int, initial_offset: int) -> TruncationPoint:
    """The offset at which `log` diverges from its leader's.

    The leader reports that its greatest epoch up to the follower's last one is `leader_epoch` and ends at `leader_end_offset`.
    `initial_offset` is used when the leader knows no such epoch: the high watermark, for a log without epochs.
    """
    if leader_end_offset == UNDEFINED_OFFSET:
        return TruncationPoint(initial_offset, True)
    log_end_offset = log.log_end_offset
    if leader_epoch == UNDEFINED_EPOCH:
        return TruncationPoint(min(leader_end_offset, log_end_offset), True)
    epoch, end_offset = log.end_offset_for_epoch(leader_epoch)
    if epoch == UNDEFINED_EPOCH or end_offset == UNDEFINED_OFFSET:
        # This log knows no epoch that old. The leader's epoch is below the one in the request, so its end is safe.
        return TruncationPoint(min(leader_end_offset, log_end_offset), True)
    if epoch != leader_epoch:
        return TruncationPoint(min(end_offset, log_end_offset), False)
    return TruncationPoint(min(end_offset, leader_end_offset, log_end_offset), True)


async def truncate(log: PartitionLog, offset: int, is_current: Callable[[], bool]) -> bool:
    """Truncate `log` to `offset` in a thread. Returns the result of `is_current` afterwards.

    The log reports its new end at once. Meanwhile appends and reads are refused; they may come if the partition gets another leader.
    Raises LogDirFailure.
    """
    if offset < log.high_watermark:
        logger.warning(
            "%s is truncated to offset %d, below its high watermark %d: consumers may have read records that the new leader lacks, because "
            "it was elected while it was not in sync (unclean.leader.election.enable), or because its log is older",
            log.topic_partition, offset, log.high_watermark,
        )  # fmt: skip
    await done(lambda then: log.truncations.truncate_in_thread(offset, then))
    return is_current()


async def truncate_fully(log: PartitionLog, offset: int) -> None:
    """Empty `log`, so that it begins at `offset`, in a thread as `truncate` does. Raises LogDirFailure."""
    await done(lambda then: log.truncations.truncate_fully_in_thread(offset, then))


async def cut_all(fetcher: Fetcher, diverging: Sequence[tuple[FollowedPartition, int, int]]) -> None:
    """Truncate logs at the offsets where they diverge from the leader's, given the leader's epoch and its end for each of them."""
    for start in range(0, len(diverging), CUT_AT_ONCE):
        await asyncio.gather(*(_cut(fetcher, *each) for each in diverging[start : start + CUT_AT_ONCE]))


async def _cut(fetcher: Fetcher, followed: FollowedPartition, epoch: int, end_offset: int) -> None:
    if not fetcher.is_current(followed):
        return
    log = followed.partition.log
    point = truncation_point(log, epoch, end_offset, followed.offset)
    logger.info(
        "%s: epoch %d of broker %d ends at offset %d; truncating to offset %d%s", followed.topic_partition, epoch, fetcher.leader_id,
        end_offset, point.offset, "" if point.is_complete else " and asking again",
    )  # fmt: skip
    await _truncate_to(fetcher, followed, point.offset, is_complete=point.is_complete)


async def _truncate_to(fetcher: Fetcher, followed: FollowedPartition, offset: int, *, is_complete: bool) -> None:
    log = followed.partition.log
    try:
        is_done = await truncate(log, offset, lambda: fetcher.is_current(followed) and followed.partition.log is log)
    except Exception as error:
        _on_failure(fetcher, followed, error)
        return
    if not fetcher.is_current(followed):
        return
    # A replaced log is fetched from its own end, and gets its own report of a divergence.
    fetch_from_end(fetcher, followed)
    if is_done and followed.is_truncating and (is_complete or fetcher.settings.versions.truncates_on_fetch):
        followed.is_truncating = False
        fetcher.truncating.pop(followed, None)
        fetcher.session.add(followed)


async def begin_lower(fetcher: Fetcher, followed: FollowedPartition, found: Found, unexpected: UnexpectedAppendOffset) -> None:
    """Begin an empty log with a batch that starts before its start offset, as the leader's log may after DeleteRecords."""
    log = followed.partition.log
    if not fetcher.is_current(followed) or not log.begins_inside_batch(unexpected):
        return
    try:
        await truncate_fully(log, unexpected.first_offset)
    except Exception as error:
        _on_failure(fetcher, followed, error)
        return
    if fetcher.is_current(followed):
        fetch_from_end(fetcher, followed)
        if followed.partition.log is log:
            fetcher.process(followed, found)


def _on_failure(fetcher: Fetcher, followed: FollowedPartition, error: Exception) -> None:
    fetcher_failures.on_broken(fetcher, followed, error)
    if fetcher.is_current(followed):
        fetch_from_end(fetcher, followed)  # from the new end, which the log reports already


def fetch_from_end(fetcher: Fetcher, followed: FollowedPartition) -> None:
    """Fetch the partition from the end of its log, which has changed."""
    log = followed.partition.log
    followed.offset = log.log_end_offset
    followed.last_fetched_epoch = fetcher.last_epoch(log)
    if followed.is_wanted:
        fetcher.session.touch(followed)


async def truncate_before_fetching(fetcher: Fetcher) -> None:
    """Truncate logs without epochs to the high watermark. Before 2.7 truncate the others to the offsets of OffsetForLeaderEpoch
    (KIP-101)."""
    versions = fetcher.settings.versions
    asked: dict[TopicPartition, tuple[int, int]] = {}
    asking: list[FollowedPartition] = []
    for followed in list(fetcher.truncating):
        await pause()
        log = followed.partition.log
        if not fetcher.is_current(followed):
            fetcher.unfollow(followed.topic_partition)
        elif log.latest_epoch is not None and versions.asks_for_epochs:
            asked[followed.topic_partition] = (followed.leader_epoch, log.latest_epoch)
            asking.append(followed)
        else:
            await _truncate_to(fetcher, followed, followed.offset, is_complete=True)
    if not asking:
        return
    settings = fetcher.settings
    try:
        found = await end_offsets_of_epochs(fetcher.peer, versions, settings.broker_id, asked, settings.timeout_ms)
    except PeerUnavailable as error:
        logger.warning("%s: broker %d did not report the ends of epochs: %s", fetcher.client_id, fetcher.leader_id, error)
        fetcher_failures.delay_all(fetcher, asking)
        return
    diverging: list[tuple[FollowedPartition, int, int]] = []
    for followed in asking:
        answered = found.get(followed.topic_partition)
        if not fetcher.is_current(followed):
            continue
        if answered is None or answered.error_code:
            fetcher_failures.on_error_code(
                fetcher, followed, ErrorCode.of(answered.error_code if answered else ErrorCode.UNKNOWN_SERVER_ERROR)
            )
        else:
            diverging.append((followed, answered.leader_epoch, answered.end_offset))
    await cut_all(fetcher, diverging)


async def on_out_of_range(fetcher: Fetcher, followed: FollowedPartition) -> None:
    """Handle an offset that the leader does not have. If the leader's end is lower, truncate to it; else begin an empty log at its start.

    As in Apache Kafka, records below the leader's end stay unchanged.
    """
    try:
        leader_end, _ = await ask(fetcher, followed, LATEST)
        if not fetcher.is_current(followed):
            return
        log = followed.partition.log
        end_offset = log.log_end_offset
        if leader_end < end_offset:
            logger.warning("%s: truncating from offset %d to the end of its leader, broker %d, at %d", followed.topic_partition,
                           end_offset, fetcher.leader_id, leader_end)  # fmt: skip
            await truncate(log, leader_end, lambda: fetcher.is_current(followed) and followed.partition.log is log)
            followed.lag = 0
        else:
            leader_start, _ = await ask(fetcher, followed, EARLIEST)
            if not fetcher.is_current(followed):
                return
            log = followed.partition.log
            if leader_start > log.log_end_offset:
                logger.warning("%s: broker %d begins at offset %d; all records here, up to %d, are older and are removed",
                               followed.topic_partition, fetcher.leader_id, leader_start, log.log_end_offset)  # fmt: skip
                await truncate_fully(log, leader_start)
            followed.lag = max(0, leader_end - log.log_end_offset)
    except LeaderRefused as refused:
        if fetcher.is_current(followed):
            fetcher_failures.on_error_code(fetcher, followed, refused.code)
        return
    except PeerUnavailable as error:
        logger.warning("%s: broker %d did not report the end of its log: %s", followed.topic_partition, fetcher.leader_id, error)
        fetcher_failures.delay(fetcher, followed)
        return
    except Exception as error:
        _on_failure(fetcher, followed, error)
        return
    if fetcher.is_current(followed):
        fetch_from_end(fetcher, followed)


async def ask(fetcher: Fetcher, followed: FollowedPartition, timestamp: int) -> tuple[int, int]:
    """The leader's answer to ListOffsets: offset and leader epoch. Raises LeaderRefused, PeerUnavailable."""
    settings = fetcher.settings
    return await list_offset(
        fetcher.peer,
        settings.versions,
        settings.broker_id,
        followed.topic_partition,
        followed.leader_epoch,
        timestamp,
        settings.timeout_ms,
    )
