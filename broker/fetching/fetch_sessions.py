"""Keeps the fetch sessions that clients may continue (KIP-227).

Only the Fetch handler calls it. A session has an id, and an epoch that every request increments. So a lost or repeated request, or one of
another client, is refused instead of misinterpreted. `max.incremental.fetch.session.cache.slots` bounds the number of sessions. A full
cache evicts a session that was not used for two minutes; for a follower or a larger session, it evicts a consumer's small one.

MAX_PARTITIONS bounds their memory: a session has every partition that its client names, whether it exists or not. When it is reached, the
largest session of a consumer leaves for a follower, or for a smaller session. Otherwise one client could keep all others from sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.fetching.fetch_session import NO_SESSION, FetchSession, next_epoch

EVICTION_MS = 120_000
"""Time without a request after which any other session may replace a session, ms (Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""
MAX_PARTITIONS: Final = 1_000_000
"""Partitions of all sessions together; each takes 300 bytes or more."""
MAX_CONSUMER_PARTITIONS: Final = 100_000
"""Partitions of a consumer's session. A fetch sorts those that are not idle in one turn of the loop, 100,000 in some milliseconds."""


class FetchSessionError(Exception):
    """A request cannot continue its session."""


class FetchSessionIdNotFound(FetchSessionError):
    """The session does not exist: it was evicted, or belonged to an earlier run of the broker."""


class InvalidFetchSessionEpoch(FetchSessionError):
    """The request is not the next one that the session expects."""


class FetchSessionTopicIdError(FetchSessionError):
    """A session with topic names got a request with topic ids, or the reverse."""


class FetchSessionCache:
    """All sessions, at most `slots`, and the number of their `partitions`.

    `random_bits(31)` gives ids that other clients cannot guess; times are those of `elapsed_ms`.
    """

    __slots__ = ("_random_bits", "_sizes", "evictions", "partitions", "sessions", "slots")

    def __init__(self, slots: int, random_bits: Callable[[int], int]) -> None:
        self.slots = slots
        self.sessions: dict[int, FetchSession] = {}
        self.evictions = 0
        self.partitions = 0
        self._sizes: dict[int, int] = {}
        """The partitions of each session that are counted in `partitions`."""
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
        session.epoch = next_epoch(epoch)
        session.last_used_ms = now_ms
        return session

    def remove(self, session_id: int) -> None:
        """Drop a session, if it exists."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= self._sizes.pop(session_id)
            session.end()

    def has_room(self, session: FetchSession) -> bool:
        """Count the partitions of a session after a request has changed them. False if it has grown, and there are too many now."""
        session_id = session.session_id
        before = self._sizes.get(session_id)
        if before is None or before == session.size:  # None: it was evicted meanwhile
            return True
        self._sizes[session_id] = session.size
        self.partitions += session.size - before
        return session.size < before or (self.partitions <= MAX_PARTITIONS and _is_of_allowed_size(session, session.is_follower))

    def maybe_keep(self, session: FetchSession, *, is_follower: bool, now_ms: int) -> int:
        """Keep the session of a full request if there is room for it. Returns its id, or NO_SESSION."""
        if not _is_of_allowed_size(session, is_follower):
            return NO_SESSION
        while self.partitions + session.size > MAX_PARTITIONS:
            victim = self._unused(now_ms) or self._largest(session.size, is_follower=is_follower)
            if victim is None:
                return NO_SESSION
            self._evict(victim)
        if len(self.sessions) >= self.slots:
            victim = self._victim(session.size, is_follower=is_follower, now_ms=now_ms)
            if victim is None:
                return NO_SESSION
            self._evict(victim)
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self.sessions:
            session_id = self._random_bits(31)
        session.session_id = session_id
        session.is_follower = is_follower
        session.created_ms = session.last_used_ms = now_ms
        self.sessions[session_id] = session
        self._sizes[session_id] = session.size
        self.partitions += session.size
        return session_id

    def _victim(self, size: int, *, is_follower: bool, now_ms: int) -> FetchSession | None:
        """The session that leaves for a new one of `size` partitions; None when no session has to."""
        victim = self._unused(now_ms)
        if victim is None:
            newcomer = (is_follower, size)
            settled = (s for s in self.sessions.values() if now_ms - s.created_ms > EVICTION_MS)
            smallest = min(settled, key=lambda s: (s.is_follower, s.size), default=None)
            if smallest is not None and (smallest.is_follower, smallest.size) < newcomer:
                victim = smallest
        return victim

    def _unused(self, now_ms: int) -> FetchSession | None:
        """The session that any other may replace."""
        oldest = min(self.sessions.values(), key=lambda session: session.last_used_ms, default=None)
        return None if oldest is None or now_ms - oldest.last_used_ms <= EVICTION_MS else oldest

    def _largest(self, size: int, *, is_follower: bool) -> FetchSession | None:
        """The session that leaves for a new one of `size` partitions when there are too many in all sessions; None if none has to."""
        consumers = (session for session in self.sessions.values() if not session.is_follower)
        largest = max(consumers, key=lambda session: session.size, default=None)
        return largest if largest is not None and (is_follower or largest.size > size) else None

    def _evict(self, victim: FetchSession) -> None:
        self.remove(victim.session_id)
        self.evictions += 1


def _is_of_allowed_size(session: FetchSession, is_follower: bool) -> bool:
    return is_follower or session.size <= MAX_CONSUMER_PARTITIONS
