"""Moves all replicas away from brokers, or a share of all replicas to new brokers, some partitions at a time.

The cluster alone keeps the state of a drain: a drain that was interrupted begins again with the replicas that are left. New replicas are
made before the old ones are removed, so a partition has all its replicas at any time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import Final

from ottla.client import reassignments
from ottla.client.cluster import Cluster
from ottla.client.config_admin import Change, ConfigOperation, ConfigResourceType, alter_configs, describe_configs
from ottla.client.errors import ClientError, SomeRefused
from ottla.client.reassignment_plan import Plan, balanced, without
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.topic_partition import TopicPartition

_POLL_SECONDS: Final = 0.2
_SETTLE_SECONDS: Final = 0.5
_PLANNED: Final = 1000
"""Partitions of one plan, which costs two answers with the metadata of all partitions."""
_BEGUN_TOGETHER: Final = 10
"""Partitions whose move begins in one step. The brokers work on a step in one burst, which delays producers."""
_SHARE_OF_A_STEP: Final = 10
"""A step has this part of `at_once`, if that is more."""
_STEP_SECONDS: Final = 1.6
"""Time from one step to the next. A burst delays records, and so for less than a hundredth of all. However few partitions a step has, it
costs the brokers a tenth of a second of processor time."""
_OWN: Final = 2
"""DYNAMIC_BROKER_CONFIG: the source of a value that was set for one broker at run time."""

Progress = Callable[[int, int], object]
"""Called with the partitions that are done, and the partitions in all."""


def left_on(cluster: Cluster, leaving: Set[int]) -> dict[TopicPartition, list[int]]:
    """The partitions that have a replica on these brokers, with all their replicas."""
    return {name: replicas for name, replicas in _replicas(cluster.refresh(None)).items() if leaving & set(replicas)}


def plan_of(cluster: Cluster, leaving: Set[int], *, ignore_racks: bool = False) -> Plan:
    """The replicas that the partitions of these brokers will have. Raises ClientError if racks or the number of brokers do not allow it.

    Where a partition is being moved, the replicas that it will have then are moved. After the end of a move brokers still list the removed
    replica for a moment, so the replicas are read a moment later than the moves.
    """
    targets = {name: move.target for name, move in reassignments.moves(cluster).items()}
    time.sleep(_SETTLE_SECONDS)
    answer = cluster.refresh(None)
    replicas_of = _replicas(answer)
    _refuse_leaderless(answer, {name for name, replicas in replicas_of.items() if leaving & set(replicas)})
    racks = {broker.node_id: None if ignore_racks else broker.rack for broker in answer.brokers}
    return without({name: targets.get(name, replicas) for name, replicas in replicas_of.items()}, racks, leaving)


def _refuse_leaderless(answer: MetadataResponse, names: Set[TopicPartition]) -> None:
    """Raises ClientError if some of these partitions have no leader: their new replicas would wait for one forever."""
    leaderless = [
        f"{topic.name}-{partition.partition_index}"
        for topic in answer.topics
        for partition in topic.partitions
        if partition.leader_id < 0 and TopicPartition(topic.name or "", partition.partition_index) in names
    ]
    if leaderless:
        raise ClientError(f"{', '.join(leaderless)} cannot be moved without a leader: start a broker that has an in-sync replica")


def drain(
    cluster: Cluster, leaving: Set[int], progress: Progress, *, at_once: int, rate: int | None = None, ignore_racks: bool = False
) -> int:
    """Move all replicas of these brokers away, `at_once` partitions at a time; returns the number of partitions that were moved.

    `rate` limits the replication, in bytes per second and broker. Partitions that are created meanwhile are moved as well. Raises
    ClientError if the cluster does not allow it or refuses a partition; what was moved by then stays moved.
    """
    moved: set[TopicPartition] = set()
    while left := left_on(cluster, leaving):
        plan = plan_of(cluster, leaving, ignore_racks=ignore_racks)
        moved |= _move_some(cluster, plan, left, progress, len(moved), at_once, rate)
    _end_throttles(cluster, rate, moved)
    return len(moved)


def _in_a_step(at_once: int) -> int:
    """Partitions whose move begins in one step: more only for who asks for more than the usual hundred at once."""
    return max(_BEGUN_TOGETHER, at_once // _SHARE_OF_A_STEP)


def spread(cluster: Cluster, progress: Progress, *, at_once: int, rate: int | None = None) -> int:
    """Move replicas until all live brokers have equally many, `at_once` partitions at a time; returns the number of moved partitions.

    As few replicas as possible move, and replicas stay spread over racks. Repeated after an interruption, it waits for the moves that have
    begun, and moves the rest. Raises ClientError if a broker with replicas is dead, or the cluster refuses a partition; what was moved by
    then stays moved.
    """
    targets = {name: move.target for name, move in reassignments.moves(cluster).items()}
    time.sleep(_SETTLE_SECONDS)
    answer = cluster.refresh(None)
    current = {name: targets.get(name, replicas) for name, replicas in _replicas(answer).items()}
    racks = {broker.node_id: broker.rack for broker in answer.brokers}
    dead = sorted({broker for replicas in current.values() for broker in replicas}.difference(racks))
    if dead:  # the plan would take all their replicas away
        raise ClientError(
            f"broker {', '.join(map(str, dead))} has replicas, and is not alive: start it, or `ottla brokers drain` it, first"
        )
    plan = balanced(current, racks)
    left = {name: current[name] for name, replicas in plan.items() if replicas != current[name] or name in targets}
    _refuse_leaderless(answer, left.keys())
    moved: set[TopicPartition] = set()
    while left:
        to_move = {name: plan[name] for name, replicas in left.items() if plan[name] != replicas}
        done = _move_some(cluster, to_move, left, progress, len(moved), at_once, rate)
        moved |= done
        left = {name: replicas for name, replicas in left.items() if name not in done}
    _end_throttles(cluster, rate, moved)
    return len(moved)


def _end_throttles(cluster: Cluster, rate: int | None, moved: Set[TopicPartition]) -> None:
    """Remove the throttles that an interrupted command has left, if its moves have ended meanwhile and nothing was left to move."""
    if rate is not None and not moved and not reassignments.moves(cluster):
        reassignments.clear_throttles(cluster, ())


def _move_some(
    cluster: Cluster, plan: Plan, left: dict[TopicPartition, list[int]], progress: Progress, before: int, at_once: int, rate: int | None
) -> set[TopicPartition]:
    """Move the first partitions of the plan, beside those that move already, and return both.

    `left` has the replicas of all partitions that are to move; those without a plan move already. A refusal ends the plan: topics may be
    gone, and brokers dead, since it was made. Raises SomeRefused if the first partitions of the plan are refused.
    """
    moving = left.keys() - plan.keys()
    names = [name for name in plan if name in left][: max(at_once, _PLANNED)]
    if rate is not None:
        reassignments.throttle(cluster, left, {name: plan[name] for name in names}, rate)
    moved, refused = _move_steadily(cluster, plan, names, moving, lambda done: progress(before + done, before + len(left)), at_once)
    _until_known(cluster, {name: plan[name] for name in moved if name in plan})
    if rate is not None:
        reassignments.clear_throttles(cluster, {name.topic for name in (*names, *moving)})
    if any(str(name) in refused for name in names[: min(at_once, _in_a_step(at_once))]):
        raise SomeRefused(refused)
    return moved


def _move_steadily(
    cluster: Cluster,
    plan: Plan,
    names: Sequence[TopicPartition],
    moving: set[TopicPartition],
    progress: Callable[[int], object],
    at_once: int,
) -> tuple[set[TopicPartition], dict[str, ClientError]]:
    """Move partitions until all are moved or some are refused, a few in each step. Those in `moving` move already.

    Returns those that moved, and those refused.
    """
    waiting = deque(names)
    moved: set[TopicPartition] = set()
    refused: dict[str, ClientError] = {}
    while moving or (waiting and not refused):
        if moving:
            left = moving.intersection(reassignments.moves(cluster, moving))
            moved |= moving - left
            moving = left
            progress(len(moved))
        room = 0 if refused else max(0, min(_in_a_step(at_once), at_once - len(moving), len(waiting)))
        if some := [waiting.popleft() for _ in range(room)]:
            outcomes = reassignments.reassign(cluster, {name: plan[name] for name in some})
            refused = {str(name): error for name, error in outcomes.items() if error is not None}
            moving |= {name for name in some if str(name) not in refused}
        if moving:
            time.sleep(_STEP_SECONDS)
    return moved, refused


def forget_settings(cluster: Cluster, broker: int) -> list[str]:
    """Delete the dynamic configuration of a live broker, which nothing else would ever delete; returns the names of the keys."""
    entries = describe_configs(cluster, ConfigResourceType.BROKER, str(broker))
    names = [entry.name for entry in entries if entry.config_source == _OWN]
    if names:
        alter_configs(cluster, ConfigResourceType.BROKER, str(broker), [Change(name, ConfigOperation.DELETE, None) for name in names])
    return names


def _replicas(answer: MetadataResponse) -> dict[TopicPartition, list[int]]:
    return {
        TopicPartition(topic.name or "", partition.partition_index): list(partition.replica_nodes)
        for topic in answer.topics
        for partition in topic.partitions
    }


def _until_known(cluster: Cluster, plan: Plan) -> None:
    """Wait until the brokers list the planned replicas alone, or until the limit of time."""
    deadline = time.monotonic() + cluster.timeout_seconds
    while time.monotonic() < deadline:
        listed = _replicas(cluster.refresh(dict.fromkeys(name.topic for name in plan)))
        if all(set(listed.get(name, replicas)) == set(replicas) for name, replicas in plan.items()):
            return
        time.sleep(_POLL_SECONDS)
