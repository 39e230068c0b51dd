"""Keeps the share sessions of members (KIP-932): which partitions a member fetches from this broker. Kafka's ShareSessionCache.

A session belongs to a member of a group, and to the connection that it was last used on. It ends with a request of the final epoch, or with
its connection; then its records are for others. A member that begins a new session keeps its records. MAX_PARTITIONS bounds the memory of
all sessions: a session has every partition that its member names, whether it exists or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeAlias

from ottla.protocol.errors import ErrorCode

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
LAST_EPOCH: Final = 2**31 - 1
MAX_PARTITIONS: Final = 1_000_000
"""Partitions of all sessions together; each takes 200 bytes or more."""
MAX_SESSION_PARTITIONS: Final = 100_000
"""Partitions of a session, as of a consumer's fetch session. So no member keeps the others from sessions."""

Place: TypeAlias = tuple[bytes, int]
"""Topic id and index of a partition."""


class SessionKey(NamedTuple):
    """A member of a group."""

    group_id: str
    member_id: str


class Owner(Protocol):
    """The client at the other end of a connection."""

    is_lost: bool
    """Whether the connection is closed."""


class ShareSession:
    """See the module. `partitions` are in the order in which they are read next; a session that has ended has none."""

    __slots__ = ("epoch", "has_ended", "key", "owner", "partitions")

    def __init__(self, key: SessionKey, owner: Owner) -> None:
        self.key = key
        self.owner = owner
        self.epoch = INITIAL_EPOCH + 1
        """That of the next request."""
        self.partitions: dict[Place, None] = {}
        self.has_ended = False

    def next_places(self, most: int) -> list[Place]:
        """The partitions that a fetch looks at. If there are more than it may look at, the next one begins with the others."""
        places = list(islice(self.partitions, most))
        if len(places) < len(self.partitions):
            for place in places:
                del self.partitions[place]
                self.partitions[place] = None
        return places


class ShareSessions:
    """See the module. `on_end` is called with a session that has ended, then `on_idle` with a group that has no more sessions.

    `partitions` is the number of partitions of all sessions.
    """

    def __init__(self, most: int, on_end: Callable[[ShareSession], object], on_idle: Callable[[str], object]) -> None:
        """`most` is `group.share.max.share.sessions`."""
        self._most = most
        self._on_end = on_end
        self._on_idle = on_idle
        self._of_group: Counter[str] = Counter()
        """The number of sessions of each group that has some."""
        self._sessions: dict[SessionKey, ShareSession] = {}
        self.partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, key: SessionKey) -> bool:
        """Whether the member has a session."""
        return key in self._sessions

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._of_group

    def begin(self, key: SessionKey, owner: Owner) -> tuple[ErrorCode, ShareSession | None]:
        """A new session of a member, in place of an earlier one."""
        former = self._sessions.pop(key, None)
        if former is not None:
            former.has_ended = True
            self._drop_partitions(former)
        if len(self._sessions) >= self._most:
            self.end_lost()
            if len(self._sessions) >= self._most:
                return ErrorCode.SHARE_SESSION_LIMIT_REACHED, None
        session = self._sessions[key] = ShareSession(key, owner)
        if former is None:
            self._of_group[key.group_id] += 1
        return ErrorCode.NONE, session

    def use(self, key: SessionKey, epoch: int, owner: Owner) -> tuple[ErrorCode, ShareSession | None]:
        """The session of a member for a request with this epoch, which may be the final one."""
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND, None
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                return ErrorCode.INVALID_SHARE_SESSION_EPOCH, None
            session.epoch = INITIAL_EPOCH + 1 if epoch == LAST_EPOCH else epoch + 1
        session.owner = owner
        return ErrorCode.NONE, session

    def add(self, session: ShareSession, place: Place) -> bool:
        """Add a partition to a session, unless it has ended. False if the session, or all sessions together, have too many then."""
        if session.has_ended or place in session.partitions:
            return True
        if self.partitions >= MAX_PARTITIONS or len(session.partitions) >= MAX_SESSION_PARTITIONS:
            return False
        session.partitions[place] = None
        self.partitions += 1
        return True

    def forget(self, session: ShareSession, place: Place) -> None:
        """Take a partition from a session, if it has it."""
        if place in session.partitions:
            del session.partitions[place]
            self.partitions -= 1

    def _drop_partitions(self, session: ShareSession) -> None:
        """A fetch that waits may keep the session for a long time; its partitions count no more."""
        self.partitions -= len(session.partitions)
        session.partitions = {}

    def end(self, session: ShareSession) -> None:
        """Forget a session."""
        if not session.has_ended:
            session.has_ended = True
            del self._sessions[session.key]
            self._on_end(session)
            self._drop_partitions(session)
            group_id = session.key.group_id
            self._of_group[group_id] -= 1
            if not self._of_group[group_id]:
                del self._of_group[group_id]
                self._on_idle(group_id)

    def end_lost(self) -> None:
        """Forget the sessions whose connections are closed."""
        for session in list(self._sessions.values()):
            if session.owner.is_lost:
                self.end(session)
