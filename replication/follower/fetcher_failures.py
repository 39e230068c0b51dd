"""Handles failures of partitions on behalf of a `Fetcher`, which calls the functions.

A partition is delayed for `replica.fetch.backoff.ms`, during which it is out of the session, or it has failed and waits for the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.protocol.errors import ErrorCode
from ottla.replication.follower.fetch_session import FollowedPartition
from ottla.storage.errors import LogDirFailure, StorageError

if TYPE_CHECKING:
    from ottla.replication.follower.fetcher import Fetcher
    from ottla.replication.ports.peer import PeerUnavailable

logger = logging.getLogger(__name__)

LATE = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Answers of a leader that does not know its epoch, or the topic, yet. It will within milliseconds, so the first retries come sooner than
after the backoff, with growing intervals."""

FIRST_LATE_MS = 20
MOST_DOUBLINGS = 10

DENIED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
"""Answers to a follower whose principal may not replicate."""
DENIED_QUIET_SECONDS = 600.0
"""Time after the line about a denial before the next one, in seconds; all partitions of a leader are denied together."""

LOUDNESS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: logging.DEBUG,
    ErrorCode.UNKNOWN_LEADER_EPOCH: logging.DEBUG,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: logging.INFO,
    ErrorCode.UNKNOWN_TOPIC_ID: logging.INFO,
    ErrorCode.INCONSISTENT_TOPIC_ID: logging.WARNING,
}
"""Log levels of errors that occur if this broker learns of a creation, deletion or election before its leader, or after it."""


def on_error_code(fetcher: Fetcher, followed: FollowedPartition, code: ErrorCode) -> None:
    """Handle an error code in the leader's answer for which there is no special action."""
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        logger.info("%s: broker %d has a later leader epoch than %d; not fetched until the controller sends the new one",
                    followed.topic_partition, fetcher.leader_id, followed.leader_epoch)  # fmt: skip
        fail(fetcher, followed)
        return
    backoff_ms = fetcher.settings.backoff_ms
    if code in DENIED:
        on_denied(fetcher, code)
    elif followed.last_error != code:
        followed.last_error = code
        followed.retries = 0
        logger.log(
            LOUDNESS.get(code, logging.ERROR), "%s: broker %d answered %s at offset %d; retrying at least every %d ms",
            followed.topic_partition, fetcher.leader_id, code.name, followed.offset, backoff_ms,
        )  # fmt: skip
    if code in LATE and followed.retries < MOST_DOUBLINGS:
        backoff_ms = min(backoff_ms, FIRST_LATE_MS << followed.retries)
        followed.retries += 1
    delay(fetcher, followed, backoff_ms)


def on_denied(fetcher: Fetcher, code: ErrorCode) -> None:
    """Log that the leader does not let this broker fetch, once for all partitions."""
    now = asyncio.get_running_loop().time()
    if now >= fetcher.quiet_until:
        fetcher.quiet_until = now + DENIED_QUIET_SECONDS
        logger.error(
            "%s: broker %d answered %s; give the principal of this broker ClusterAction on the cluster, or name it in super.users; "
            "retrying every %d ms",
            fetcher.client_id, fetcher.leader_id, code.name, fetcher.settings.backoff_ms,
        )  # fmt: skip


def on_unreachable(fetcher: Fetcher, error: PeerUnavailable) -> None:
    """Handle a missing answer. The first retries come soon, because the connection may only have broken and producers with acks=all wait.
    Later ones come less often, down to once per backoff.
    """
    backoff_ms = fetcher.settings.backoff_ms
    if not fetcher.unanswered:
        logger.warning("%s: broker %d does not answer: %s; retrying, finally every %d ms", fetcher.client_id, fetcher.leader_id, error,
                       backoff_ms)  # fmt: skip
    backoff_ms = min(backoff_ms, FIRST_LATE_MS << min(fetcher.unanswered, MOST_DOUBLINGS))
    fetcher.unanswered += 1
    delay_all(fetcher, fetcher.session.asked(), backoff_ms)


def on_broken(fetcher: Fetcher, followed: FollowedPartition, error: Exception) -> None:
    """Handle an append or a truncation that failed for a reason that another fetch would not change."""
    if isinstance(error, LogDirFailure):
        fail(fetcher, followed)
        fetcher.report_failure(error)
    elif followed.partition.log.truncations.current is not None:
        delay(fetcher, followed)  # the log repeats the truncation until it succeeds
    elif followed.is_active:
        unforeseen = None if isinstance(error, StorageError) else error
        logger.error("%s: following broker %d failed at offset %d: %s; not fetched until the controller's next request for it",
                     followed.topic_partition, fetcher.leader_id, followed.offset, error, exc_info=unforeseen)  # fmt: skip
        fail(fetcher, followed)


def fail(fetcher: Fetcher, followed: FollowedPartition) -> None:
    """Stop fetching a partition until it is followed again."""
    if followed.is_active:
        fetcher.unfollow(followed.topic_partition)
        fetcher.on_failed(followed.topic_partition)


def delay(fetcher: Fetcher, followed: FollowedPartition, backoff_ms: int | None = None) -> None:
    """Retry a partition after `backoff_ms`, or `replica.fetch.backoff.ms`."""
    if followed.is_active and followed not in fetcher.delayed:
        fetcher.session.remove(followed)
        fetcher.truncating.pop(followed, None)
        fetcher.throttled.pop(followed, None)
        followed.delayed_until = asyncio.get_running_loop().time() + (backoff_ms or fetcher.settings.backoff_ms) / 1000
        fetcher.delayed[followed] = None


def delay_all(fetcher: Fetcher, partitions: Iterable[FollowedPartition], backoff_ms: int | None = None) -> None:
    """Retry many partitions, as `delay` does."""
    for followed in list(partitions):
        delay(fetcher, followed, backoff_ms)


def resume(fetcher: Fetcher) -> None:
    """Continue with the delayed partitions that are due."""
    now = asyncio.get_running_loop().time()
    for followed in list(fetcher.delayed):
        if followed.delayed_until > now:
            continue
        del fetcher.delayed[followed]
        if followed.is_truncating:
            fetcher.truncating[followed] = None
        else:
            fetcher.session.add(followed)
