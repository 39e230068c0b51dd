"""Implements the follower's side of a fetch session (KIP-227): tracks what the leader knows, and what the next request must contain.

One `Fetcher` owns one; Kafka's FetchSessionHandler. Each `FollowedPartition` is wanted or not. It is `touch`ed when its part of a request
changes, so that a request costs its changes, not all followed partitions. Without a session (the leader's cache is full, or the versions
are too old) every request has all partitions; those that returned data last come last.

Invariants: a partition object that is not wanted is never in a request. A partition that the leader's session has and that is no longer
wanted is forgotten in the next request. After any failure the next request is a full one, which closes the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.follower.leader_requests import FIRST_FETCH_WITH_TOPIC_IDS, LAST_FETCH_WITH_TOPIC_NAMES

if TYPE_CHECKING:
    from ottla.replication.leader.partition import Partition

NO_SESSION = 0
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1
NO_EPOCH = -1
UNKNOWN_LAG = -1


@final
class FollowedPartition:
    """One partition in one leader epoch, as its fetcher sees it. Another epoch gets another object, so an old answer has no effect."""

    __slots__ = (
        "asked",
        "delayed_until",
        "is_active",
        "is_held",
        "is_touched",
        "is_truncating",
        "is_wanted",
        "lag",
        "last_error",
        "last_fetched_epoch",
        "leader_epoch",
        "offset",
        "partition",
        "requested_offset",
        "retries",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, partition: Partition, offset: int, last_fetched_epoch: int, max_bytes: int) -> None:
        self.partition = partition
        self.topic_partition: TopicPartition = partition.topic_partition
        self.topic_id = partition.fetched_topic_id
        self.leader_epoch = partition.leader_epoch
        self.offset = offset
        self.last_fetched_epoch = last_fetched_epoch
        self.lag = UNKNOWN_LAG
        self.delayed_until = 0.0
        self.is_active = True
        """False once it is unfollowed or failed. Then its log is not touched any more."""
        self.is_truncating = False
        self.last_error = 0
        self.retries = 0
        self.requested_offset = -1
        """Offset in the last request with this partition, as the leader knows it; -1 before the first."""
        self.is_wanted = False
        self.is_touched = False
        self.is_held = False
        """Whether the leader's session contains it."""
        self.asked = FetchPartition(
            partition=self.topic_partition.partition, current_leader_epoch=self.leader_epoch, partition_max_bytes=max_bytes
        )

    @property
    def is_in_sync(self) -> bool:
        """Whether, at the last answer, it had all records below the high watermark."""
        return 0 >= self.lag != UNKNOWN_LAG


@final
class Found:
    """The leader's answer for one partition. The records stay in the receive buffer until the next request."""

    __slots__ = ("high_watermark", "log_start_offset", "records")

    def __init__(self, records: memoryview, high_watermark: int, log_start_offset: int) -> None:
        self.records = records
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset


Key = str | bytes
"""A topic as in the request: by id where ids are used, else by name."""


@final
class FetchSessionHandler:
    """A fetch session with one leader. `prepare` fills `request`, which belongs to the session."""

    __slots__ = (
        "_failures",
        "_forgotten",
        "_nameless",
        "_order",
        "_touched",
        "_version",
        "epoch",
        "is_full",
        "request",
        "session_id",
        "uses_topic_ids",
        "wanted",
    )

    def __init__(self, request: FetchRequest, version: int) -> None:
        """`request` has the fields that are the same in all requests."""
        self.request = request
        self._version = version
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.is_full = True
        """Whether the next request has all partitions."""
        self.uses_topic_ids = version >= FIRST_FETCH_WITH_TOPIC_IDS
        self.wanted: dict[Key, dict[int, FollowedPartition]] = {}
        """Partitions to be fetched, by topic and index."""
        self._order: dict[FollowedPartition, None] = {}
        """The wanted partitions, in the order of a full request."""
        self._touched: list[FollowedPartition] = []
        self._forgotten: dict[tuple[Key, int], None] = {}
        self._nameless: set[FollowedPartition] = set()
        """Partitions whose topic has no id (yet). While there is one, a request cannot use ids."""
        self._failures = 0

    def __len__(self) -> int:
        return len(self._order)

    @property
    def version(self) -> int:
        """Version in which the prepared request must be sent."""
        return self._version if self.uses_topic_ids or self._version < FIRST_FETCH_WITH_TOPIC_IDS else LAST_FETCH_WITH_TOPIC_NAMES

    @property
    def has_no_request(self) -> bool:
        """Whether there is nothing to fetch and nothing to forget."""
        return not self._order and (self.is_full or not self._forgotten)

    def all(self) -> list[FollowedPartition]:
        """All wanted partitions."""
        return list(self._order)

    def asked(self) -> list[FollowedPartition]:
        """The wanted partitions that were in this request or an earlier one."""
        return [followed for followed in self._order if followed.requested_offset >= 0]

    # -- the wanted partitions

    def add(self, followed: FollowedPartition) -> None:
        """Fetch a partition from now on. It replaces another object for the same partition."""
        if followed.topic_id == ZERO_UUID and self._version >= FIRST_FETCH_WITH_TOPIC_IDS:
            self._nameless.add(followed)
        self._add(followed)

    def _add(self, followed: FollowedPartition) -> None:
        key, index = self._key(followed), followed.topic_partition.partition
        of_topic = self.wanted.setdefault(key, {})
        old = of_topic.get(index)
        if old is not None and old is not followed:
            self.remove(old)
            of_topic = self.wanted.setdefault(key, {})
        if (key, index) in self._forgotten:
            del self._forgotten[key, index]
            followed.is_held = True
        of_topic[index] = followed
        self._order[followed] = None
        followed.is_wanted = True
        followed.requested_offset = -1
        self.touch(followed)

    def remove(self, followed: FollowedPartition) -> None:
        """Stop fetching a partition, if it is wanted."""
        if not followed.is_wanted:
            return
        followed.is_wanted = False
        key, index = self._key(followed), followed.topic_partition.partition
        of_topic = self.wanted[key]
        del of_topic[index]
        if not of_topic:
            del self.wanted[key]
        del self._order[followed]
        self._nameless.discard(followed)
        if followed.is_held:
            followed.is_held = False
            self._forgotten[key, index] = None

    def touch(self, followed: FollowedPartition) -> None:
        """Mark a partition whose part of the request may have changed."""
        if not followed.is_touched:
            followed.is_touched = True
            self._touched.append(followed)

    def serve_last(self, followed: FollowedPartition) -> None:
        """Move a partition that returned data to the end. In a session the leader does that; without one the next request does."""
        if self.session_id == NO_SESSION and followed.is_wanted:
            del self._order[followed]
            self._order[followed] = None

    def _key(self, followed: FollowedPartition) -> Key:
        return followed.topic_id if self.uses_topic_ids else followed.topic_partition.topic

    # -- requests and answers

    def prepare(self) -> FetchRequest:
        """The next request. Until it is sent, only `add`, `remove` and `touch` may be called."""
        if self._version >= FIRST_FETCH_WITH_TOPIC_IDS and (self._nameless or not self.uses_topic_ids):
            self._choose_naming()
        request = self.request
        request.session_id = self.session_id
        request.session_epoch = self.epoch
        if self.is_full:
            partitions = list(self._order)
            self._forgotten.clear()
            for followed in self._touched:
                followed.is_touched = False
            for followed in partitions:
                followed.is_held = True
        else:
            partitions = self._touched
        self._touched = []
        uses_topic_ids = self.uses_topic_ids
        topics: list[FetchTopic] = []
        last: Key | None = None
        for followed in partitions:
            followed.is_touched = False
            if not followed.is_wanted:
                continue
            asked = followed.asked
            asked.fetch_offset = followed.requested_offset = followed.offset
            asked.last_fetched_epoch = followed.last_fetched_epoch
            asked.log_start_offset = followed.partition.log.log_start_offset
            followed.is_held = True
            key: Key = followed.topic_id if uses_topic_ids else followed.topic_partition.topic
            if key != last:
                last = key
                topic = FetchTopic(topic=followed.topic_partition.topic, topic_id=followed.topic_id)
                topics.append(topic)
            topic.partitions.append(asked)
        request.topics = topics
        if self._forgotten:
            request.forgotten_topics_data = self._take_forgotten()
        elif request.forgotten_topics_data:
            request.forgotten_topics_data = []
        return request

    def _take_forgotten(self) -> list[ForgottenTopic]:
        topics: dict[Key, ForgottenTopic] = {}
        for key, index in self._forgotten:
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = ForgottenTopic(topic_id=key) if isinstance(key, bytes) else ForgottenTopic(topic=key)
            topic.partitions.append(index)
        self._forgotten.clear()
        return list(topics.values())

    def _choose_naming(self) -> None:
        """Use topic ids as soon as all topics have one. A change starts a new session, because the leader's has the other naming."""
        for followed in [each for each in self._nameless if each.partition.fetched_topic_id != ZERO_UUID]:
            self.remove(followed)
            followed.topic_id = followed.partition.fetched_topic_id
            self.add(followed)
        if self.uses_topic_ids == bool(self._nameless):
            partitions = list(self._order)
            self.uses_topic_ids = not self._nameless
            self.wanted.clear()
            self._order.clear()
            for followed in partitions:
                self._add(followed)
            self._begin_anew()

    def on_answer(self, error_code: int, session_id: int) -> bool:
        """Continue, end or begin the session according to an answer. Returns whether the answer has partitions."""
        if error_code:
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            self._begin_anew()
            self._failures += 1
            return False
        self._failures = 0
        if session_id == NO_SESSION:
            self.session_id = NO_SESSION
            self._begin_anew()
        elif self.is_full:
            self.session_id = session_id
            self.epoch = 1
            self.is_full = False
        else:
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        return True

    def on_failure(self) -> None:
        """Handle a missing answer. The leader may have seen the request or not, so the next one closes the session and begins another."""
        self._begin_anew()

    @property
    def keeps_failing(self) -> bool:
        """Whether a new session was refused, too, so that an immediate retry is useless."""
        return self._failures > 1

    def _begin_anew(self) -> None:
        self.epoch = INITIAL_EPOCH
        self.is_full = True
