"""The model of members of a consumer group: how long a member can be sure of its partitions. Answers are given by the test."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from ottla.protocol.schema.message import Message
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.consumers import SURE_S, ConsumerMember, Owners


class Told(ConsumerMember):
    """A member whose coordinator answers as the test says; each heartbeat is sent a second after the last one."""

    def __init__(self, owners: Owners, clock: SimpleNamespace) -> None:
        super().__init__(cast("SimulatedCluster", SimpleNamespace(loop=clock)), "orders", "sharing", owners, seed=1)
        self.coordinator = -1
        self._clock = clock
        self._answer: ConsumerGroupHeartbeatResponse | None = None

    async def ask_coordinator(self, key: ApiKey, version: int, request: Message) -> Message | None:
        """Returns the next answer."""
        return self._answer

    def beat(self, *partitions: int, is_lost: bool = False) -> None:
        """Sends a heartbeat, and is told its partitions."""
        self._clock.seconds += 1.0
        topics = [ConsumerGroupHeartbeatResponseTopicPartitions(partitions=list(partitions))]
        given = Assignment(topic_partitions=topics)
        self._answer = None if is_lost else ConsumerGroupHeartbeatResponse(member_epoch=1, assignment=given)
        asyncio.run(self._beat())


def a_member() -> Told:
    clock = SimpleNamespace(seconds=0.0)
    clock.time = lambda: clock.seconds
    elections = SimpleNamespace(states={})
    owners = Owners(cast("SimulatedCluster", SimpleNamespace(loop=clock)), elections)  # type: ignore[arg-type]  # it reads the states alone
    return Told(owners, clock)


def test_a_member_is_sure_since_the_heartbeat_that_was_answered() -> None:
    member = a_member()
    member.beat(0, 1)
    member.beat(0)
    assert member.sure_until == 2.0 + SURE_S


def test_a_member_is_sure_since_the_first_heartbeat_whose_answer_was_lost() -> None:
    """The coordinator may have told it then to give up a partition, and the rebalance timeout runs from there on."""
    member = a_member()
    member.beat(0, 1)
    for _ in range(3):
        member.beat(is_lost=True)
    member.beat(0)
    assert member.sure_until == 2.0 + SURE_S
    member.beat(0)
    assert member.sure_until == 6.0 + SURE_S
