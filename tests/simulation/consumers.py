"""Members of a group of the new protocol in a simulated cluster: they come, go, vanish, and are slow to give up partitions.

A partition that a member has, and of which it could still be sure, is given to no other member. The epoch of a member never goes back. When
all is quiet, every partition has one owner.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.topic_partition import TopicPartition
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.elections import Elections
from tests.simulation.groups import GroupClient

SESSION_TIMEOUT_MS: Final = 6_000
REBALANCE_TIMEOUT_MS: Final = 5_000
SURE_S: Final = min(SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS) / 1000
"""A member whose coordinator answers is sure of its partitions for so long after it sent the first heartbeat since the answer before. The
rebalance timeout may have begun with any heartbeat whose answer was lost, and its end frees all partitions of the member."""
HEARTBEATS_PER_S: Final = 3.0
SLOW_S: Final = 1.0
COORDINATED: Final = TopicPartition("__consumer_offsets", 0)
_FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class Owners:
    """The members of the group, as they see themselves."""

    def __init__(self, cluster: SimulatedCluster, elections: Elections) -> None:
        self.members: list[ConsumerMember] = []
        self.given = 0
        """How often a member got a partition."""
        self._cluster = cluster
        self._elections = elections

    def coordinator(self) -> tuple[int, int]:
        """The broker that coordinates the group in truth, and since which epoch; -1 for none."""
        state = self._elections.states.get(COORDINATED)
        return (-1, -1) if state is None else (state.leader, state.leader_epoch)

    def give(self, member: ConsumerMember, partitions: frozenset[int]) -> None:
        """A member was told that it has partitions that it did not have."""
        self.given += len(partitions)
        now = self._cluster.loop.time()
        for other in self.members:
            both = partitions & other.owned
            if other is member or not both:
                continue
            assert now > other.sure_until, f"partitions {sorted(both)} are {other.member_id}'s, and were given to {member.member_id}"


class ConsumerMember(GroupClient):
    """Joins, has partitions, gives them up when it is told so; now and then it leaves, or vanishes, and comes again as somebody new."""

    def __init__(self, cluster: SimulatedCluster, topic: str, group: str, owners: Owners, seed: int) -> None:
        super().__init__(cluster, topic, group, seed)
        self.settling = False
        """It stays where it is from now on."""
        self.member_id = ""
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self.sure_until = 0.0
        """The virtual time until which it can be sure of its partitions."""
        self._told: frozenset[int] | None = None
        self._unanswered_since: float | None = None
        """When it sent the first heartbeat since the last answer."""
        self._topic_id = bytes(16)
        self._owners = owners
        owners.members.append(self)
        self._begin_anew()

    async def run(self) -> None:
        """Until `stopping`."""
        while not self.stopping:
            await asyncio.sleep(self.random.expovariate(HEARTBEATS_PER_S))
            chance = 1.0 if self.settling else self.random.random()
            if chance < 0.02:
                self._begin_anew()
            elif chance < 0.05 and self.epoch:
                await self._leave()
            elif chance < 0.08:
                await asyncio.sleep(self.random.uniform(0, SLOW_S))
            else:
                await self._beat()

    async def _leave(self) -> None:
        """Gives up its partitions before it says that it leaves: another member may have them before the answer arrives."""
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=-1)
        self._begin_anew()
        await self._ask(request)

    def _begin_anew(self) -> None:
        self.member_id = f"{self.group}-{self.random.getrandbits(32):08x}"
        self._rejoin()

    def _rejoin(self) -> None:
        self.epoch, self.owned, self._told, self.sure_until, self._unanswered_since = 0, frozenset(), None, 0.0, None

    async def _ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
        return cast("ConsumerGroupHeartbeatResponse | None", await self.ask_coordinator(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request))

    async def _beat(self) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch)
        if self._told is None:  # it joins, or does not know whether the last answer was lost
            request.rebalance_timeout_ms, request.subscribed_topic_names = REBALANCE_TIMEOUT_MS, [self.topic]
        if self.owned != self._told:
            owned = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))]
            request.topic_partitions = owned if self.owned else []
        if self._unanswered_since is None:
            self._unanswered_since = self.cluster.loop.time()
        since, said, coordinator = self._unanswered_since, self.owned, self._owners.coordinator()
        answer = await self._ask(request)
        if answer is None:
            self._told = None
            return
        if answer.error_code:
            self._on_error(answer.error_code)
            return
        assert answer.member_epoch >= self.epoch, f"the epoch of {self.member_id} went back from {self.epoch} to {answer.member_epoch}"
        self.epoch, self._told, self._unanswered_since = answer.member_epoch, said, None
        if coordinator == self._owners.coordinator() and coordinator[0] == self.coordinator:
            self.sure_until = since + SURE_S
        if answer.assignment is not None:
            owned = frozenset(index for each in answer.assignment.topic_partitions for index in each.partitions)
            for each in answer.assignment.topic_partitions:
                self._topic_id = each.topic_id
            self._owners.give(self, owned - self.owned)
            self.owned = owned

    def _on_error(self, code: int) -> None:
        if code in _FENCED:
            self._rejoin()
            return
        assert code != ErrorCode.UNKNOWN_SERVER_ERROR, f"group {self.group} at broker {self.coordinator}"
        self._told = None
        self.forget_coordinator()


def is_shared(members: list[ConsumerMember], partitions: int) -> bool:
    """Whether all members are in one epoch, and have every partition among them."""
    shares = [len(member.owned) for member in members]
    is_equal = max(shares) - min(shares) <= 1 and len({member.epoch for member in members}) == 1
    return is_equal and sorted(index for member in members for index in member.owned) == list(range(partitions))
