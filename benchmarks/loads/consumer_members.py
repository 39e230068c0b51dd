"""Plays groups of the new protocol: how long a rebalance takes when a member leaves, and the heartbeats of a stable group.

A rebalance is measured with members that behave as clients, which hear of it by their next heartbeat. Heartbeats are measured with the load
generator: each connection sends those of one member, the next when the last is answered.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

import uvloop

from benchmarks.loadgen.prepared import Prepared
from benchmarks.loads import frames
from benchmarks.loads.admin import GROUP, Admin
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tests.support.consumer_crowd import VERSION, ConsumerCrowd

PATIENCE_S: Final = 120.0
_STEPS: Final = 7
"""The member leaves at another moment of the others' intervals each time: after so many parts of one."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A rebalance: its time, and the times without an owner of all partitions together."""

    took_s: float
    unowned_s: float


def rebalances(port: int, group: str, topic: str, partitions: int, members: int, times: int) -> list[Rebalance]:
    """So many times one of the members leaves. Raises TimeoutError, BrokerRefusedError."""
    with Admin("127.0.0.1", port) as admin:
        admin.coordinator_port(GROUP, group)
    return uvloop.run(_rebalances(port, group, topic, partitions, members, times))


async def _rebalances(port: int, group: str, topic: str, partitions: int, members: int, times: int) -> list[Rebalance]:
    crowd = await ConsumerCrowd.of(port, group, topic, partitions, members)
    found = []
    try:
        crowd.live()
        await crowd.until_stable(PATIENCE_S)
        for number in range(times):
            interval_s = max(member.interval_ms for member in crowd.members) / 1000
            await asyncio.sleep(interval_s * (1 + number / _STEPS))
            await crowd.until_stable(PATIENCE_S)
            crowd.begin_count()
            began = time.monotonic()
            await crowd.lose_one()
            await crowd.until_stable(PATIENCE_S)
            found.append(Rebalance(time.monotonic() - began, crowd.unowned_s))
    finally:
        crowd.disperse()
    return found


def stable_group(port: int, group: str, topic: str, partitions: int, members: int) -> list[Prepared]:
    """The heartbeats of the members of a stable group, each with nothing but the member and its epoch. Raises TimeoutError."""
    with Admin("127.0.0.1", port) as admin:
        admin.coordinator_port(GROUP, group)
    beats = uvloop.run(_stable_group(port, group, topic, partitions, members))

    def answer(code: int) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(error_code=code)

    places = frames.error_offset(ApiKey.CONSUMER_GROUP_HEARTBEAT, answer, VERSION)
    return [Prepared(frames.request_frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, beat, VERSION), (places,)) for beat in beats]


async def _stable_group(port: int, group: str, topic: str, partitions: int, members: int) -> list[ConsumerGroupHeartbeatRequest]:
    crowd = await ConsumerCrowd.of(port, group, topic, partitions, members)
    crowd.live()
    try:
        await crowd.until_stable(PATIENCE_S)
        await asyncio.sleep(1)  # partitions that the last answers gave are acknowledged
    finally:
        crowd.disperse()
    return [
        ConsumerGroupHeartbeatRequest(group_id=group, member_id=member.member_id, member_epoch=member.epoch) for member in crowd.members
    ]
