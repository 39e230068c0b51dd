"""Members of share groups in a simulated cluster: they get records, acknowledge them in all ways, vanish, and claim what is not their own.

A request without an answer is sometimes sent again as it was, so leaders get it twice, or much later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final, cast

from ottla.coordination.shares.record_states import AcknowledgeType
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import share_acknowledge as acknowledging
from ottla.protocol.messages import share_fetch as fetching
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.reader import iter_records
from ottla.protocol.uuid import to_text
from ottla.replication.ports.peer import PeerUnavailable
from tests.simulation.clients import METADATA_TIMEOUT_MS, Client
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.groups import GroupClient
from tests.simulation.shares.deliveries import Deliveries, Given

ACTIONS_PER_S: Final = 12.0
HEARTBEATS: Final = 0.2
"""How likely an action is a heartbeat."""
FINAL: Final = -1
SENT_AGAIN: Final = 0.4
"""How likely a request without an answer is sent once more."""
MOST_ATTEMPTS: Final = 2
KINDS: Final = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.GAP)
WEIGHTS: Final = (12, 5, 2, 1)
_FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})

Place = tuple[bytes, int]
"""Topic id and index of a partition."""
Answered = list[tuple[Given, AcknowledgeType]]
"""The deliveries that a request acknowledges, and how."""


class LeadersById(Client):
    """What the members believe of leaders: from Metadata, of whoever answers."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        super().__init__(cluster, "", seed)
        self.known: dict[Place, int] = {}

    async def leader(self, place: Place) -> int | None:
        """Whoever is said to lead a partition; None if nobody is, or there is no such topic."""
        if place not in self.known:
            request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=place[0], name=None)], allow_auto_topic_creation=False)
            asked = self.random.choice(list(self.cluster.nodes))
            try:
                answer = await self.ask(asked, ApiKey.METADATA, 12, request, timeout_ms=METADATA_TIMEOUT_MS)
            except PeerUnavailable:
                return None
            for topic in cast("MetadataResponse", answer).topics:
                for found in topic.partitions:
                    if found.leader_id >= 0:
                        self.known[place[0], found.partition_index] = found.leader_id
        return self.known.get(place)

    def forget(self, place: Place, leader: int) -> None:
        """The leader was none."""
        if self.known.get(place) == leader:
            del self.known[place]


class _Session:
    """The share session with one broker."""

    def __init__(self) -> None:
        self.epoch = 0
        self.places: set[Place] = set()


class ShareMember(GroupClient):
    """See the module."""

    def __init__(
        self, cluster: SimulatedCluster, topics: list[str], group: str, leaders: LeadersById, deliveries: Deliveries, seed: int
    ) -> None:
        super().__init__(cluster, topics[0], group, seed)
        self.settling = False
        """It stays, and accepts all that it gets, from now on."""
        self.assigned: frozenset[Place] = frozenset()
        self.epoch = 0
        self.member_id = ""
        self._topics = topics
        self._leaders = leaders
        self._deliveries = deliveries
        self._is_told = False
        self._held: dict[Place, dict[int, Given]] = {}
        self._sessions: dict[int, _Session] = {}
        self._begin_anew()

    async def run(self) -> None:
        """Until `stopping`."""
        while not self.stopping:
            await asyncio.sleep(self.random.expovariate(ACTIONS_PER_S))
            chance = 1.0 if self.settling else self.random.random()
            if chance < 0.005:
                self._begin_anew()  # its records stay locked without it
            elif chance < 0.015:
                await self._leave()
            elif not self.epoch or self.random.random() < HEARTBEATS:
                await self._beat()
            else:
                await self._work()

    # The group

    def _begin_anew(self) -> None:
        self.member_id = f"{self.group}-{self.random.getrandbits(32):08x}"
        self._held, self._sessions = {}, {}
        self._rejoin()

    def _rejoin(self) -> None:
        self.epoch, self.assigned, self._is_told = 0, frozenset(), False

    async def _leave(self) -> None:
        """End the sessions, which releases all records, and leave the group."""
        self._deliveries.leave(self.member_id)
        for broker_id, session in self._sessions.items():
            if session.epoch > 0:
                request = acknowledging.ShareAcknowledgeRequest(
                    group_id=self.group, member_id=self.member_id, share_session_epoch=FINAL, topics=[]
                )
                await self._ask_leader(broker_id, ApiKey.SHARE_ACKNOWLEDGE, request)
        left = ShareGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=-1)
        self._begin_anew()
        await self.ask_coordinator(ApiKey.SHARE_GROUP_HEARTBEAT, 1, left)

    async def _beat(self) -> None:
        request = ShareGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch)
        if not self._is_told:
            request.subscribed_topic_names = self._topics
        answer = cast("ShareGroupHeartbeatResponse | None", await self.ask_coordinator(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request))
        if answer is None:
            self._is_told = False
        elif answer.error_code in _FENCED:
            self._rejoin()
        elif answer.error_code:
            assert answer.error_code != ErrorCode.UNKNOWN_SERVER_ERROR, f"group {self.group} at broker {self.coordinator}"
            self._is_told = False
            self.forget_coordinator()
        else:
            self.epoch, self._is_told = answer.member_epoch, True
            if answer.assignment is not None:
                topics = answer.assignment.topic_partitions
                self.assigned = frozenset((each.topic_id, index) for each in topics for index in each.partitions)

    # Records

    def assigned_texts(self) -> list[str]:
        """The partitions that it has, with whoever it takes for their leaders."""
        return [f"{to_text(topic_id)}-{index} at {self._leaders.known.get((topic_id, index))}" for topic_id, index in sorted(self.assigned)]

    async def _work(self) -> None:
        """Ask one broker for records, or acknowledge some of its records."""
        by_leader: dict[int, list[Place]] = {}
        for place in sorted(self.assigned):
            leader = await self._leaders.leader(place)
            if leader is not None:
                by_leader.setdefault(leader, []).append(place)
        if not by_leader:
            return
        broker_id = self.random.choice(sorted(by_leader))
        session = self._sessions.setdefault(broker_id, _Session())
        led = set(by_leader[broker_id])
        if session.epoch and self.random.random() < 0.4:
            await self.random.choice([self._acknowledge, self._acknowledge, self._renew, self._steal])(broker_id, session)
        else:
            await self._fetch(broker_id, session, led)

    def _share_partition(self, place: Place) -> SharePartitionKey:
        return SharePartitionKey(self.group, *place)

    def _choose(self, places: set[Place]) -> tuple[dict[Place, list[tuple[int, int, list[int]]]], dict[Place, Answered]]:
        """Acknowledge some records of these partitions: batches by partition, and what they answer. The records are let go."""
        batches: dict[Place, list[tuple[int, int, list[int]]]] = {}
        answered: dict[Place, Answered] = {}
        for place in sorted(places):
            held = self._held.get(place, {})
            chosen = [offset for offset in sorted(held) if self.settling or self.random.random() < 0.8]
            for _, run in groupby(enumerate(chosen), lambda pair: pair[1] - pair[0]):
                offsets = [offset for _, offset in run]
                count = len(offsets) if self.random.random() < 0.5 else 1
                kinds = [AcknowledgeType.ACCEPT] * count if self.settling else self.random.choices(KINDS, WEIGHTS, k=count)
                batches.setdefault(place, []).append((offsets[0], offsets[-1], [int(kind) for kind in kinds]))
                for offset, kind in zip(offsets, kinds if count > 1 else kinds * len(offsets), strict=True):
                    given = held.pop(offset)
                    self._deliveries.let_go(given, kind)
                    answered.setdefault(place, []).append((given, kind))
        return batches, answered

    async def _fetch(self, broker_id: int, session: _Session, led: set[Place]) -> None:
        if session.epoch:
            batches, answered = self._choose(session.places)
            named, forgotten = led - session.places | batches.keys(), session.places - led - batches.keys()
        else:
            batches, answered, named, forgotten = {}, {}, led, set()
        topics: dict[bytes, fetching.FetchTopic] = {}
        for topic_id, index in sorted(named):
            topic = topics.setdefault(topic_id, fetching.FetchTopic(topic_id=topic_id))
            topic.partitions.append(
                fetching.FetchPartition(
                    partition_index=index,
                    acknowledgement_batches=[
                        fetching.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                        for first, last, types in batches.get((topic_id, index), ())
                    ],
                )
            )
        request = fetching.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=self.random.choice([0, 100, 400]),
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=self.random.choice([1, 3, 10, 500]),
            batch_size=self.random.choice([1, 4, 500]),
            share_acquire_mode=self.random.randrange(2),
            topics=list(topics.values()),
            forgotten_topics_data=[fetching.ForgottenTopic(topic_id=topic_id, partitions=[index]) for topic_id, index in sorted(forgotten)],
        )
        answer, attempts = await self._ask_leader(broker_id, ApiKey.SHARE_FETCH, request)
        if answer is None or answer.error_code:
            self._on_failed(broker_id, is_lost=answer is None)
            return
        session.epoch += 1
        session.places = (session.places | named) - forgotten
        for topic in answer.responses:
            for each in topic.partitions:
                place = topic.topic_id, each.partition_index
                self._settle(answered.get(place, ()), each.acknowledge_error_code, attempts)
                self._check_code(place, broker_id, each.error_code)
                self._take(place, each)

    def _take(self, place: Place, found: fetching.PartitionData) -> None:
        """Take the records that are acquired; the answer has whole batches."""
        data = bytes(found.records or b"")
        values = {record.offset: record.value for at, header in iter_batches(data) for record in iter_records(data, at, header)}
        held = self._held.setdefault(place, {})
        for acquired in found.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                assert offset in values, f"{self._share_partition(place)}: record {offset} is acquired, and not in the answer"
                held[offset] = self._deliveries.deliver(
                    self._share_partition(place), offset, values[offset], self.member_id, acquired.delivery_count
                )

    async def _acknowledge(self, broker_id: int, session: _Session) -> None:
        batches, answered = self._choose(session.places)
        if batches:
            await self._send_batches(broker_id, session, batches, answered)

    async def _renew(self, broker_id: int, session: _Session) -> None:
        """Lock some records anew that the member can be sure of, and others."""
        held = [(place, offset) for place in sorted(session.places) for offset in sorted(self._held.get(place, ()))]
        if not held:
            return
        place, offset = self.random.choice(held)
        given, asked_at = self._held[place][offset], self.cluster.loop.time()
        renewed: dict[Place, list[tuple[int, int, list[int]]]] = {place: [(offset, offset, [int(AcknowledgeType.RENEW)])]}
        code = await self._send_batches(broker_id, session, renewed, {}, is_renewal=True)
        if code == ErrorCode.NONE:
            self._deliveries.renew(given, asked_at)

    async def _steal(self, broker_id: int, session: _Session) -> None:
        """Acknowledge records that others have."""
        if not session.places:
            return
        place = self.random.choice(sorted(session.places))
        first = self.random.randrange(200)
        offsets = range(first, first + self.random.randint(1, 3))
        if any(offset in self._held.get(place, {}) for offset in offsets):
            return
        locks = self._deliveries.locks_of_others(self._share_partition(place), offsets, self.member_id, broker_id)
        batches = {place: [(offsets[0], offsets[-1], [int(AcknowledgeType.ACCEPT)])]}
        code = await self._send_batches(broker_id, session, batches, {})
        if code == ErrorCode.NONE:
            stolen = [given for given in locks if self._deliveries.is_locked(given, broker_id)]
            assert not stolen, f"{self.member_id} accepted {stolen[0].record.name}, which {stolen[0].member_id} has"

    async def _send_batches(
        self,
        broker_id: int,
        session: _Session,
        batches: dict[Place, list[tuple[int, int, list[int]]]],
        answered: dict[Place, Answered],
        *,
        is_renewal: bool = False,
    ) -> int | None:
        """Send a ShareAcknowledge. Returns the code of its last partition, or None."""
        topics = [
            acknowledging.AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    acknowledging.AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            acknowledging.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                            for first, last, types in of_partition
                        ],
                    )
                ],
            )
            for (topic_id, index), of_partition in batches.items()
        ]
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=self.group, member_id=self.member_id, share_session_epoch=session.epoch, is_renew_ack=is_renewal, topics=topics
        )
        answer, attempts = await self._ask_leader(broker_id, ApiKey.SHARE_ACKNOWLEDGE, request)
        if answer is None or answer.error_code:
            self._on_failed(broker_id, is_lost=answer is None)
            return None
        session.epoch += 1
        code = None
        for topic in answer.responses:
            for each in topic.partitions:
                place, code = (topic.topic_id, each.partition_index), each.error_code
                self._settle(answered.get(place, ()), code, attempts)
                self._check_code(place, broker_id, code)
        return code

    async def _ask_leader(self, broker_id: int, key: ApiKey, request: Any) -> tuple[Any, int]:
        """The answer, or None, and how often the request was sent."""
        attempts = 0
        while attempts < MOST_ATTEMPTS:
            attempts += 1
            try:
                return await self.ask(broker_id, key, 2, request), attempts
            except PeerUnavailable:
                if self.random.random() > SENT_AGAIN:
                    break
        return None, attempts

    def _on_failed(self, broker_id: int, *, is_lost: bool) -> None:
        """Begin another session with the next request."""
        self._sessions.pop(broker_id, None)
        if is_lost:
            for place in self.assigned:
                self._leaders.forget(place, broker_id)

    def _settle(self, answered: Iterable[tuple[Given, AcknowledgeType]], code: int, attempts: int) -> None:
        for given, kind in answered:
            self._deliveries.settle(given, kind, code, was_sent_again=attempts > 1)

    def _check_code(self, place: Place, broker_id: int, code: int) -> None:
        if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR):
            self._leaders.forget(place, broker_id)
            self._held.pop(place, None)
