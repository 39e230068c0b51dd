"""Keeps the fetch sessions that clients may continue (KIP-227).

Only the Fetch handler calls it. A session has an id, and an epoch that every request increments. So a lost or repeated request, or one of
another client, is refused instead of misinterpreted. `max.incremental.fetch.session.cache.slots` bounds the number of sessions. A full
cache evicts a session that was not used for two minutes; for a follower or a larger session, it evicts a consumer's small one.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.fetching.fetch_session import FetchSession, next_epoch
from broker.fetching.session_numbers import NO_SESSION

EVICTION_MS = 120_000
"""Time without a request after which any other session may replace a session, ms (Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""


class FetchSessionError(Exception):
    """A request cannot continue its session."""


class FetchSessionIdNotFound(FetchSessionError):
    """The session does not exist: it was evicted, or belonged to an earlier run of the broker."""


class InvalidFetchSessionEpoch(FetchSessionError):
    """The request is not the next one that the session expects."""


class FetchSessionTopicIdError(FetchSessionError):
    """A session with topic names got a request with topic ids, or the reverse."""


class FetchSessionCache:
    """All sessions, at most `slots`. `random_bits(31)` gives ids that other clients cannot guess; times are those of `elapsed_ms`."""

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
        session.epoch = next_epoch(epoch)
        session.last_used_ms = now_ms
        return session

    def remove(self, session_id: int) -> None:
        """Drop a session, if it exists."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            session.end()

    def maybe_keep(self, session: FetchSession, *, is_follower: bool, now_ms: int) -> int:
        """Keep the session of a full request if there is room for it. Returns its id, or NO_SESSION."""
        if len(self.sessions) >= self.slots and not self._evict(session.size, is_follower=is_follower, now_ms=now_ms):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self.sessions:
            session_id = self._random_bits(31)
        session.session_id = session_id
        session.is_follower = is_follower
        session.created_ms = session.last_used_ms = now_ms
        self.sessions[session_id] = session
        return session_id

    def _evict(self, size: int, *, is_follower: bool, now_ms: int) -> bool:
        """Evict a session for a new one of `size` partitions; False when no session may be evicted."""
        if not self.sessions:
            return False
        oldest = min(self.sessions.values(), key=lambda session: session.last_used_ms)
        victim = oldest if now_ms - oldest.last_used_ms > EVICTION_MS else None
        if victim is None:
            newcomer = (is_follower, size)
            settled = (s for s in self.sessions.values() if now_ms - s.created_ms > EVICTION_MS)
            smallest = min(settled, key=lambda s: (s.is_follower, s.size), default=None)
            if smallest is not None and (smallest.is_follower, smallest.size) < newcomer:
                victim = smallest
        if victim is None:
            return False
        self.remove(victim.session_id)
        self.evictions += 1
        return True
