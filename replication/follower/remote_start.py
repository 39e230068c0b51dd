"""Continues a follower whose next records its leader has in the remote store only: OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405).

The leader reports where its local log begins, and in which epoch. The follower's log begins anew behind the remote segment before that
offset (`replication/remote/aux_state`). An unclean election leaves copies of a history that is lost, so the segment has to be one of the
leader's epochs. The remote store may be slow, so a task reads it, while the fetcher goes on with its other partitions.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.protocol.errors import ErrorCode
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.follower import fetcher_failures
from ottla.replication.follower.fetch_session import FollowedPartition
from ottla.replication.follower.leader_requests import EARLIEST, EARLIEST_LOCAL, LATEST, LeaderRefused, end_offsets_of_epochs
from ottla.replication.follower.truncation import ask, fetch_from_end
from ottla.replication.ports.peer import PeerUnavailable
from ottla.replication.remote.aux_state import AuxStates
from ottla.storage.errors import LogDirFailure
from ottla.storage.remote.lineage import Epochs
from ottla.storage.remote.ports import MetadataNotReady, RemoteStoreError

if TYPE_CHECKING:
    from ottla.replication.follower.fetcher import Fetcher

logger = logging.getLogger(__name__)


async def on_moved_to_tiered_storage(fetcher: Fetcher, followed: FollowedPartition) -> None:
    """Ask the leader for its starts, and have the log begin behind the remote records."""
    states = fetcher.settings.aux_states
    log = followed.partition.log
    if states is not None and log.tier is None and log.topic_id != ZERO_UUID:
        log.begin_tier()  # the leader still has remote records of a topic that has lost its remote storage
        states.on_tier(followed.partition)
    if states is None or log.tier is None:
        fetcher_failures.on_error_code(fetcher, followed, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
        return
    try:
        local_start, epoch = await ask(fetcher, followed, EARLIEST_LOCAL)
        if epoch > 0:
            epoch = await _epoch_before(fetcher, followed, local_start, epoch)
        epochs = await _epochs_from(fetcher, followed, epoch)
        leader_start, _ = await ask(fetcher, followed, EARLIEST)
        leader_end, _ = await ask(fetcher, followed, LATEST)
    except LeaderRefused as refused:
        if fetcher.is_current(followed):
            fetcher_failures.on_error_code(fetcher, followed, refused.code)
        return
    except PeerUnavailable as error:
        logger.warning("%s: broker %d did not report the starts of its log: %s", followed.topic_partition, fetcher.leader_id, error)
        fetcher_failures.delay(fetcher, followed)
        return
    if not fetcher.is_current(followed):
        return
    fetcher.session.remove(followed)
    task = asyncio.create_task(
        _begin(fetcher, followed, states, epochs, local_start - 1, leader_start, leader_end),
        name=f"remote start of {followed.topic_partition}",
    )
    fetcher.beginning_remotely[followed] = task
    task.add_done_callback(lambda _: fetcher.on_begun(followed))


async def _epoch_before(fetcher: Fetcher, followed: FollowedPartition, local_start: int, epoch: int) -> int:
    """The epoch of the offset before `local_start`, which is in `epoch`. Raises LeaderRefused, PeerUnavailable."""
    before, end_offset = await _end_of_epoch(fetcher, followed, epoch - 1)
    return before if end_offset > local_start - 1 else epoch


async def _epochs_from(fetcher: Fetcher, followed: FollowedPartition, epoch: int) -> list[tuple[int, int]]:
    """The leader's epochs from this one on, and where those behind it begin; none if it does not know the epoch.

    There are as many requests as epochs, which is one if the leader wrote both the remote and the local records. Raises LeaderRefused,
    PeerUnavailable.
    """
    found: list[tuple[int, int]] = []
    latest = followed.leader_epoch
    if epoch >= 0:
        latest, _ = await _end_of_epoch(fetcher, followed, latest)
        while latest > epoch:
            before, start_offset = await _end_of_epoch(fetcher, followed, latest - 1)
            found.append((latest, start_offset))
            latest = min(before, latest - 1)
    return [(epoch, 0), *reversed(found)] if latest == epoch else []


async def _end_of_epoch(fetcher: Fetcher, followed: FollowedPartition, epoch: int) -> tuple[int, int]:
    """The leader's largest epoch up to this one, and its end. Raises LeaderRefused, PeerUnavailable."""
    settings = fetcher.settings
    asked = {followed.topic_partition: (followed.leader_epoch, epoch)}
    found = await end_offsets_of_epochs(fetcher.peer, settings.versions, settings.broker_id, asked, settings.timeout_ms)
    answered = found.get(followed.topic_partition)
    if answered is None or answered.error_code:
        code = ErrorCode.of(answered.error_code) if answered is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        raise LeaderRefused(followed.topic_partition, code)
    return answered.leader_epoch, answered.end_offset


async def _begin(
    fetcher: Fetcher,
    followed: FollowedPartition,
    states: AuxStates,
    epochs: Epochs,
    offset: int,
    leader_start: int,
    leader_end: int,
) -> None:
    """`epochs` are those of the leader from that of the offset on."""
    log = followed.partition.log
    stats = states.counters.of(followed.topic_partition.topic)
    stats.build_aux_state_requests += 1
    try:
        async with states.state_at(log, epochs, offset, leader_end) as state:
            if not fetcher.is_current(followed) or followed.partition.log is not log:
                return
            logger.info("%s: begins at offset %d, because the records from offset %d on are in the remote store", followed.topic_partition,
                        state.offset, leader_start)  # fmt: skip
            await states.begin(log, state, leader_start, lambda: fetcher.is_current(followed) and followed.partition.log is log)
    except MetadataNotReady:
        fetcher_failures.delay(fetcher, followed)
        return
    except RemoteStoreError as error:
        stats.build_aux_state_errors += 1
        logger.error("%s: cannot begin behind the remote records: %s; retrying in %d ms", followed.topic_partition, error,
                     fetcher.settings.backoff_ms)  # fmt: skip
        fetcher_failures.delay(fetcher, followed)
        return
    except Exception as error:
        stats.build_aux_state_errors += 1
        if isinstance(error, LogDirFailure) or fetcher.is_current(followed):
            fetcher_failures.on_broken(fetcher, followed, error)
        return
    if fetcher.is_current(followed):
        fetch_from_end(fetcher, followed)
        followed.lag = max(0, leader_end - followed.offset)
        fetcher.session.add(followed)
