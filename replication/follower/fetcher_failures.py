"""What a fetcher does about what goes wrong with a partition: methods of `Fetcher`, kept in a file of their own.

A partition is delayed for `replica.fetch.backoff.ms`, out of the session meanwhile, or it has failed and waits for the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from replication.follower.fetch_session import FollowedPartition
from storage.errors import LogDirFailure, StorageError

if TYPE_CHECKING:
    from replication.follower.fetcher import Fetcher
    from replication.ports.peer import PeerUnavailable

logger = logging.getLogger(__name__)

LATE = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""What a leader answers that has not heard of its epoch, or of the topic, yet. It will within milliseconds, so it is asked again sooner
than after the backoff; but less and less often."""

FIRST_LATE_MS = 20
MOST_DOUBLINGS = 10

LOUDNESS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: logging.DEBUG,
    ErrorCode.UNKNOWN_LEADER_EPOCH: logging.DEBUG,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: logging.INFO,
    ErrorCode.UNKNOWN_TOPIC_ID: logging.INFO,
    ErrorCode.INCONSISTENT_TOPIC_ID: logging.WARNING,
}
"""How loud to say what comes of creations, deletions and elections that this broker heard of before its leader, or after it."""


def on_error_code(self: Fetcher, followed: FollowedPartition, code: ErrorCode) -> None:
    """The leader answered with an error that it is of no use to look into."""
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        logger.info("%s: broker %d is past leader epoch %d; nothing is fetched until the controller tells the new one",
                    followed.topic_partition, self.leader_id, followed.leader_epoch)  # fmt: skip
        self.fail(followed)
        return
    backoff_ms = self.settings.backoff_ms
    if followed.last_error != code:
        followed.last_error = code
        followed.retries = 0
        logger.log(
            LOUDNESS.get(code, logging.ERROR), "%s: broker %d answered %s at offset %d; tried again every %d ms at least",
            followed.topic_partition, self.leader_id, code.name, followed.offset, backoff_ms,
        )  # fmt: skip
    if code in LATE and followed.retries < MOST_DOUBLINGS:
        backoff_ms = min(backoff_ms, FIRST_LATE_MS << followed.retries)
        followed.retries += 1
    self.delay(followed, backoff_ms)


def on_unreachable(self: Fetcher, error: PeerUnavailable) -> None:
    """No answer. A connection that broke can be made anew, and producers with acks=all wait for it: it is tried soon, and then less often,
    down to once in the backoff.
    """
    backoff_ms = self.settings.backoff_ms
    if not self.unanswered:
        logger.warning("%s: broker %d does not answer: %s; tried again, every %d ms at last", self.client_id, self.leader_id, error,
                       backoff_ms)  # fmt: skip
    backoff_ms = min(backoff_ms, FIRST_LATE_MS << min(self.unanswered, MOST_DOUBLINGS))
    self.unanswered += 1
    self.delay_all(self.session.asked(), backoff_ms)


def on_broken(self: Fetcher, followed: FollowedPartition, error: Exception) -> None:
    """The log cannot be written: another fetch would not change that."""
    if isinstance(error, LogDirFailure):
        self.fail(followed)
        self.on_log_dir_failure(error.log_dir, error.what)
    elif followed.is_active:
        unforeseen = None if isinstance(error, StorageError) else error
        logger.error("%s: following broker %d failed at offset %d: %s; nothing is fetched until the controller speaks of it again",
                     followed.topic_partition, self.leader_id, followed.offset, error, exc_info=unforeseen)  # fmt: skip
        self.fail(followed)


def fail(self: Fetcher, followed: FollowedPartition) -> None:
    """Fetch it no more until it is followed anew."""
    if followed.is_active:
        self.unfollow(followed.topic_partition)
        self.on_failed(followed.topic_partition)


def delay(self: Fetcher, followed: FollowedPartition, backoff_ms: int | None = None) -> None:
    """Fetch it again after `backoff_ms`, or `replica.fetch.backoff.ms`."""
    if followed.is_active and followed not in self.delayed:
        self.session.remove(followed)
        self.truncating.pop(followed, None)
        self.throttled.pop(followed, None)
        followed.delayed_until = asyncio.get_running_loop().time() + (backoff_ms or self.settings.backoff_ms) / 1000
        self.delayed[followed] = None


def delay_all(self: Fetcher, partitions: Iterable[FollowedPartition], backoff_ms: int | None = None) -> None:
    """The same for many."""
    for followed in list(partitions):
        self.delay(followed, backoff_ms)


def resume(self: Fetcher) -> None:
    """Those whose time has come go on."""
    now = asyncio.get_running_loop().time()
    for followed in list(self.delayed):
        if followed.delayed_until > now:
            continue
        del self.delayed[followed]
        if followed.is_truncating:
            self.truncating[followed] = None
        else:
            self.session.add(followed)
