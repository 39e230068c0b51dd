"""Incremental fetch sessions (KIP-227): the broker remembers which partitions a client fetches and what it last told it about each.

Called by the Fetch handler alone. A session is named by an id and moves by an epoch with every request, so a request that was lost,
repeated or sent by somebody else is refused instead of being misread. Their number is bounded by
`max.incremental.fetch.session.cache.slots`: a full cache gives up a session that was not used for two minutes, or prefers a follower
or a larger session to a consumer's small one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from protocol.messages.fetch import FetchPartition, PartitionData
from protocol.uuid import ZERO_UUID

if TYPE_CHECKING:
    from broker.fetching.session_watch import SessionWatch, WatchedPartition

logger = logging.getLogger(__name__)

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
EVICTION_MS = 120_000
"""A session that was not used for this long makes room for any other (Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""


class FetchSessionError(Exception):
    """Why a request cannot go on with a session."""


class FetchSessionIdNotFound(FetchSessionError):
    """No such session here: it was evicted, or belonged to an earlier run of the broker."""


class InvalidFetchSessionEpoch(FetchSessionError):
    """Not the request that the session expects next."""


class FetchSessionTopicIdError(FetchSessionError):
    """A session that speaks topic names was asked with topic ids, or the other way round."""


class SessionPartition:
    """One partition of a fetch, and what its client was last told about it."""

    __slots__ = (
        "high_watermark",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "name",
        "offset",
        "partition",
        "start",
        "topic_id",
        "watched",
    )

    def __init__(self, name: str | None, topic_id: bytes, asked: FetchPartition) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition = asked.partition
        self.high_watermark = -1
        self.log_start_offset = -1
        self.watched: WatchedPartition | None = None
        self.leader_epoch = known_epoch(asked.current_leader_epoch)
        self.update(asked)

    def update(self, asked: FetchPartition) -> None:
        """Take what the client asks for from now on.

        Who asks in another leader epoch began anew, and may have thrown away the answer that told the high watermark: it is told again.
        Apache Kafka would leave a follower with its old one until the next record.
        """
        leader_epoch = known_epoch(asked.current_leader_epoch)
        if leader_epoch != self.leader_epoch:
            self.high_watermark = -1
        self.offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = known_epoch(asked.last_fetched_epoch)
        self.start = asked.log_start_offset

    def has_news(self, answer: PartitionData) -> bool:
        """Whether an incremental answer must name this partition; remembers what it says."""
        news = bool(answer.records)
        if self.high_watermark != answer.high_watermark:
            news = True
            self.high_watermark = answer.high_watermark
        if self.log_start_offset != answer.log_start_offset:
            news = True
            self.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica != -1 or answer.diverging_epoch.epoch != -1:
            news = True
        if answer.error_code:
            # forget, so that the first answer after the error names the partition whatever it says
            self.high_watermark = -1
            news = True
        return news


Partitions = dict[tuple[str | bytes, int], SessionPartition]


class FetchSession:
    """What one client fetches. `partitions` keeps the order of service: those that returned data go to the end."""

    __slots__ = ("created_ms", "epoch", "is_follower", "last_used_ms", "partitions", "session_id", "uses_topic_ids", "watch")

    def __init__(self, session_id: int, partitions: Partitions, *, is_follower: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.partitions = partitions
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.watch: SessionWatch | None = None
        """By whom its partitions are watched, while it is a follower's of which nothing is out of the ordinary."""

    def end_watch(self) -> None:
        """Something is done to it that its watch does not know of."""
        if self.watch is not None:
            self.watch.end()

    def update(self, asked: Iterable[tuple[str | None, bytes, FetchPartition]], forgotten: Iterable[tuple[str | None, bytes, int]]) -> None:
        """Add, change and drop partitions as an incremental request says."""
        for name, topic_id, partition in asked:
            key = (topic_id if self.uses_topic_ids else name or "", partition.partition)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = SessionPartition(name, topic_id, partition)
            else:
                known.update(partition)
        for name, topic_id, index in forgotten:
            self.partitions.pop((topic_id if self.uses_topic_ids else name or "", index), None)

    def serve_last(self, key: tuple[str | bytes, int]) -> None:
        """Move a partition that returned data behind those that did not, so that none starves."""
        if len(self.partitions) > 1:
            self.partitions[key] = self.partitions.pop(key)


def known_epoch(epoch: int) -> int:
    """A leader epoch of a Fetch; any negative one means that the client knows none."""
    return epoch if epoch >= 0 else -1


def next_epoch(epoch: int) -> int:
    """The epoch of the request that follows; wraps to 1, since 0 begins a session."""
    if epoch == FINAL_EPOCH:
        return FINAL_EPOCH
    return 1 if epoch == 2**31 - 1 else epoch + 1


class FetchSessionCache:
    """All sessions, bounded by `slots`. `random_bits(31)` gives ids nobody can guess from another's; times are those of `elapsed_ms`."""

    __slots__ = ("_random_bits", "evictions", "sessions", "slots")

    def __init__(self, slots: int, random_bits: Callable[[int], int]) -> None:
        self.slots = slots
        self.sessions: dict[int, FetchSession] = {}
        self.evictions = 0
        self._random_bits = random_bits

    def get(self, session_id: int, epoch: int, *, uses_topic_ids: bool, now_ms: int) -> FetchSession:
        """The session for an incremental request, moved to its next epoch.

        Raises FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError.
        """
        session = self.sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(session_id)
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(session_id, epoch, session.epoch)
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(session_id)
        session.end_watch()
        self.advance(session_id, now_ms)
        return session

    def advance(self, session_id: int, now_ms: int) -> None:
        """The session was asked in its epoch: it expects the next one."""
        session = self.sessions[session_id]
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = now_ms

    def remove(self, session_id: int) -> None:
        """Forget a session; nothing happens when there is none."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            session.end_watch()

    def maybe_create(self, partitions: Partitions, *, is_follower: bool, uses_topic_ids: bool, now_ms: int) -> int:
        """Make a session if there is room for one of this size; its id, or NO_SESSION."""
        if len(self.sessions) >= self.slots and not self._evict(len(partitions), is_follower=is_follower, now_ms=now_ms):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self.sessions:
            session_id = self._random_bits(31)
        self.sessions[session_id] = FetchSession(
            session_id, partitions, is_follower=is_follower, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        return session_id

    def _evict(self, size: int, *, is_follower: bool, now_ms: int) -> bool:
        """Give up one session for a new one of `size` partitions; False when none may be given up for it."""
        if not self.sessions:
            return False
        oldest = min(self.sessions.values(), key=lambda session: session.last_used_ms)
        victim = oldest if now_ms - oldest.last_used_ms > EVICTION_MS else None
        if victim is None:
            newcomer = (is_follower, size)
            settled = (s for s in self.sessions.values() if now_ms - s.created_ms > EVICTION_MS)
            smallest = min(settled, key=lambda s: (s.is_follower, len(s.partitions)), default=None)
            if smallest is not None and (smallest.is_follower, len(smallest.partitions)) < newcomer:
                victim = smallest
        if victim is None:
            return False
        self.remove(victim.session_id)
        self.evictions += 1
        return True


def key_of(name: str | None, topic_id: bytes, partition: int) -> tuple[str | bytes, int]:
    """How a partition is found in a session: by topic id where the request has them, else by name."""
    return (topic_id if topic_id != ZERO_UUID else name or "", partition)
