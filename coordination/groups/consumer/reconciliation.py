"""Brings a member of a consumer group to its target, step by step, so that no partition ever has two owners.

A member first gives up what is no longer in its target. It stays in its epoch until a heartbeat shows that it has done so. Then it takes
what no other member has any more, and enters the epoch of the target. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, TypeAlias

from ottla.coordination.groups.consumer.assignors import Assignment
from ottla.coordination.groups.consumer.members import NOTHING, Member, MemberState, Owned

Held: TypeAlias = Mapping[bytes, AbstractSet[int]]
"""The partitions that a heartbeat names as owned, by topic id."""

OwnerEpoch: TypeAlias = Callable[[bytes, int], int]
"""The epoch of the member that has a partition; FREE for one that no member has."""

FREE: Final = -1


class UnknownMemberState(Exception):
    """The log has a state of the member that this release does not know, and the member may own partitions."""


class Goal(NamedTuple):
    """The target of a member: its epoch, and the partitions."""

    epoch: int
    target: Assignment
    only: frozenset[bytes] | None = None
    """The topics to which the member subscribes now, if that changed after the target was computed; None if it did not."""

    def wanted(self, topic: bytes) -> frozenset[int]:
        """The partitions of a topic that the member may have."""
        if self.only is not None and topic not in self.only:
            return frozenset()
        return self.target.get(topic, frozenset())


def reconcile(member: Member, goal: Goal, owner_epoch: OwnerEpoch, held: Held | None) -> Member:
    """The member after a heartbeat that names the partitions `held`, or names none. Raises UnknownMemberState."""
    if member.state is MemberState.UNKNOWN:
        if held is None or held:
            raise UnknownMemberState
        return _next(member.at_epoch(goal.epoch), goal, owner_epoch, held)
    is_waiting = member.state is MemberState.UNREVOKED_PARTITIONS and _may_hold(member.revoking, held)
    if is_waiting or member.is_reconciled_to(goal.epoch):
        return member if goal.only is None else _without_unsubscribed(member, goal.only, held)
    return _next(member, goal, owner_epoch, held)


def _may_hold(revoking: Owned, held: Held | None) -> bool:
    """Whether a member that has to give up partitions may have some of them. A heartbeat that names no partitions says nothing of them."""
    if held is None:
        return True
    return any(not partitions.keys().isdisjoint(held.get(topic, ())) for topic, partitions in revoking.items())


def _without_unsubscribed(member: Member, subscribed: frozenset[bytes], held: Held | None) -> Member:
    """The member gives up the topics that it does not subscribe to any more, without waiting for the next target."""
    gone = {topic: partitions for topic, partitions in member.assigned.items() if topic not in subscribed}
    if not gone:
        return member
    kept = {topic: partitions for topic, partitions in member.assigned.items() if topic in subscribed}
    revoking = {**member.revoking, **{topic: {**member.revoking.get(topic, {}), **partitions} for topic, partitions in gone.items()}}
    if not _may_hold(revoking, held):
        return member._replace(assigned=kept)
    return member._replace(state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)


def _next(member: Member, goal: Goal, owner_epoch: OwnerEpoch, held: Held | None) -> Member:
    kept: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    for topic, partitions in member.assigned.items():
        wanted = goal.wanted(topic)
        if wanted >= partitions.keys():
            kept[topic] = partitions
            continue
        stays = {index: since for index, since in partitions.items() if index in wanted}
        if stays:
            kept[topic] = stays
        revoking[topic] = {index: since for index, since in partitions.items() if index not in wanted}
    if revoking and _may_hold(revoking, held):
        return member._replace(state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)
    waits = False
    for topic in goal.target:
        has = kept.get(topic, {})
        missing = [index for index in goal.wanted(topic) if index not in has]
        given_up = member.revoking.get(topic, {})
        free = [index for index in missing if index in given_up or owner_epoch(topic, index) == FREE]
        waits = waits or len(free) < len(missing)
        if free:
            kept[topic] = {**has, **dict.fromkeys(free, goal.epoch)}
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return member.at_epoch(goal.epoch)._replace(state=state, assigned=kept, revoking=NOTHING)
