"""Compares what share groups deliver with what their members acknowledged: every acquisition by a leader, and every answer to a member.

The order of leaders is that of their epochs. A term is the time in which a broker keeps a share partition in memory: locks and deliveries
that nobody has acknowledged end with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from ottla.coordination.shares.led_partitions import LedPartition, LedPartitions
from ottla.coordination.shares.record_states import AcknowledgeType, Acquired
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.protocol.errors import ErrorCode
from tests.simulation.cluster import SimulatedCluster

LIMIT: Final = 5
"""Deliveries of a record."""
LOCK_MS: Final = 2_000
ROUNDING_S: Final = 0.002
"""A lock may end so much earlier, because the times of brokers are whole milliseconds."""
COMPLETING: Final = frozenset({AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.GAP})


class Given:
    """A delivery of one record by a leader. The member has it until `until`, unless it lets it go before."""

    __slots__ = ("count", "is_let_go", "led", "member_id", "record", "until")

    def __init__(self, record: DeliveredRecord, led: LedPartition, member_id: str, count: int, until: float) -> None:
        self.record = record
        self.led = led
        self.member_id = member_id
        self.count = count
        self.until = until
        self.is_let_go = False

    @property
    def epoch(self) -> int:
        """That of the leader."""
        return self.led.leader_epoch


class DeliveredRecord:
    """A record, as one group had it."""

    __slots__ = ("claimed_by", "completed_by", "doubtful", "given", "is_completion_asked", "last", "most", "name", "released")

    def __init__(self, name: str) -> None:
        self.name = name
        self.given: dict[tuple[str, int], Given] = {}
        """By member and count of the delivery."""
        self.last: dict[LedPartition, Given] = {}
        """The last delivery of each term."""
        self.most = 0
        """The greatest count of its deliveries."""
        self.completed_by: Given | None = None
        """The delivery that a member accepted or rejected, and was told that this is stored."""
        self.is_completion_asked = False
        self.released: Given | None = None
        """The last delivery whose release is stored."""
        self.doubtful: set[str] = set()
        """Members that let it go by a request without an answer, which may still arrive, and end a later lock."""
        self.claimed_by: set[str] = set()
        """Members that accepted it without knowing whether they have it."""

    @property
    def is_done(self) -> bool:
        """Whether there is a reason for not delivering it any more."""
        is_claimed = any(member_id in self.claimed_by for member_id, _ in self.given)
        return self.completed_by is not None or self.is_completion_asked or is_claimed or self.most >= LIMIT


class Deliveries:
    """See the module. Brokers hide exceptions of their handlers, so what is wrong at a leader is kept in `wrong`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.wrong: list[str] = []
        self.acquired = 0
        self.completed = 0
        self._cluster = cluster
        self._loop = cluster.loop
        self._terms: set[LedPartition] = set()
        self._gone: set[str] = set()
        self._records: dict[tuple[SharePartitionKey, int], DeliveredRecord] = {}
        self._values: dict[tuple[bytes, int, int], bytes | None] = {}

    @property
    def records(self) -> int:
        """Records that were delivered, counted for each group."""
        return sum(1 for record in self._records.values() if record.given)

    @property
    def terms(self) -> int:
        """How often a broker loaded a share partition, and delivered records of it."""
        return len(self._terms)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sees what the leaders acquire for members."""
        acquire = LedPartitions.acquire

        def watched(led_partitions: LedPartitions, led: LedPartition, member_id: str, *rest: Any) -> list[Acquired]:
            acquired = acquire(led_partitions, led, member_id, *rest)
            self._on_acquired(led, member_id, acquired)
            return acquired

        with patch.object(LedPartitions, "acquire", watched):
            yield

    def _on_acquired(self, led: LedPartition, member_id: str, acquired: Sequence[Acquired]) -> None:
        self._terms.add(led)
        now = self._loop.time()
        until = now + LOCK_MS / 1000 - ROUNDING_S
        for first, last, count in acquired:
            for offset in range(first, last + 1):
                record = self._record(led.key, offset)
                given = Given(record, led, member_id, count, 0.0 if member_id in record.doubtful else until)
                wrong = self._objection(record, record.last.get(led), given)
                if wrong:
                    self.wrong.append(f"{record.name}: {wrong}")
                record.given[member_id, count] = record.last[led] = given
                record.most = max(record.most, count)
                self.acquired += 1

    def _objection(self, record: DeliveredRecord, former: Given | None, given: Given) -> str | None:
        """The fault of a delivery, if it has any. `former` is the one before it in the same term."""
        if not 1 <= given.count <= LIMIT:
            return f"its {given.count}th delivery is one too many"
        done, released = record.completed_by, record.released
        if done is not None and given.epoch >= done.epoch:
            return f"{done.member_id} completed it at the leader of epoch {done.epoch}; that of epoch {given.epoch} delivers it again"
        if released is not None and given.epoch >= released.epoch and given.count <= released.count:
            return f"it was released after its {released.count}th delivery, and this is the {given.count}th"
        if former is None:
            return None
        if self._is_sure(former):
            return f"{former.member_id} has it until {former.until:.3f}, and {given.member_id} gets it at {self._loop.time():.3f}"
        if given.count <= former.count:
            return f"its {former.count}th delivery is followed by the {given.count}th"
        return None

    def _is_sure(self, given: Given) -> bool:
        return not given.is_let_go and given.member_id not in self._gone and self._loop.time() < given.until

    def _record(self, key: SharePartitionKey, offset: int) -> DeliveredRecord:
        record = self._records.get((key, offset))
        if record is None:
            record = self._records[key, offset] = DeliveredRecord(f"record {offset} of {key}")
        return record

    # What members see, and say

    def deliver(self, key: SharePartitionKey, offset: int, value: bytes | None, member_id: str, count: int) -> Given:
        """A member got a record: a leader has acquired it for this member, and nobody ever saw another one there."""
        record = self._record(key, offset)
        known = self._values.setdefault((key.topic_id, key.partition, offset), value)
        assert known == value, f"{record.name} was {known!r}, and is {value!r}"
        given = record.given.get((member_id, count))
        assert given is not None, f"{record.name} was delivered to {member_id} for the {count}th time; no leader has acquired it so"
        return given

    def let_go(self, given: Given, kind: AcknowledgeType) -> None:
        """A member sends its acknowledgement. Until the answer another request of the member may get it the record anew."""
        record = given.record
        record.doubtful.add(given.member_id)
        for each in record.given.values():
            each.is_let_go |= each.member_id == given.member_id
        if kind in COMPLETING:
            record.is_completion_asked = True

    def settle(self, given: Given, kind: AcknowledgeType, code: int, *, was_sent_again: bool) -> None:
        """A member has the answer to its acknowledgement. The other one of two equal requests may still arrive."""
        record = given.record
        if not was_sent_again:
            record.doubtful.discard(given.member_id)
        if code != ErrorCode.NONE:
            return
        if kind in COMPLETING:
            self.completed += 1
            record.completed_by = given
        elif kind is AcknowledgeType.RELEASE:
            record.released = given

    def leave(self, member_id: str) -> None:
        """A member ends its sessions, and so all its locks. It never comes back under this id."""
        self._gone.add(member_id)

    def renew(self, given: Given, asked_at: float) -> None:
        """The lock is renewed since then, or a moment later."""
        if given.member_id not in given.record.doubtful:
            given.until = max(given.until, asked_at + LOCK_MS / 1000 - ROUNDING_S)

    def locks_of_others(self, key: SharePartitionKey, offsets: range, member_id: str, broker_id: int) -> list[Given]:
        """Claim records for a member. Returns the locks that others have of them at a broker."""
        found: list[Given] = []
        for record in [self._record(key, offset) for offset in offsets]:
            record.claimed_by.add(member_id)
            found += [given for given in record.given.values() if given.member_id != member_id and self.is_locked(given, broker_id)]
        return found

    def is_locked(self, given: Given, broker_id: int) -> bool:
        """Whether a broker has to know that the member of a delivery has the record."""
        broker = self._cluster.nodes[broker_id].broker
        if broker is None or not hasattr(broker, "services"):
            return False
        return broker.services.coordinators.share_leader.led.find(given.led.key) is given.led and self._is_sure(given)

    # At the end

    def check_at_the_end(self, key: SharePartitionKey, offsets: range) -> None:
        """Each record was accepted, rejected, or delivered as often as allowed."""
        lost = [offset for offset in offsets if not self._record(key, offset).is_done]
        assert not lost, f"{key}: the records {lost[:20]} were never accepted, nor delivered {LIMIT} times, and are not delivered any more"
