"""Shows and changes the work of controller and coordinators for the console: elections, reassignments, transactions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Final

from starlette.datastructures import QueryParams

from ottla.cli.doctor.kinds import reasons, some
from ottla.cli.options import check_brokers
from ottla.client import reassignments
from ottla.client.cluster import NO_LEADER, Cluster
from ottla.client.errors import ClientError, Refused
from ottla.client.hanging import DEFAULT_MAX_TIMEOUT_MS, find_hanging
from ottla.client.offsets import LATEST, READ_COMMITTED, reachable_offsets
from ottla.client.reassignment_plan import balanced, from_json, to_json
from ottla.client.topic_admin import all_topics
from ottla.client.transaction_admin import (
    OPEN_STATES,
    abort_transaction,
    describe_producers,
    describe_transaction,
    forget_transaction,
    marker_of_transaction,
    reachable_transactions,
)
from ottla.console.answers import Conflict, one_line
from ottla.console.parameters import BadParameter, Body, number
from ottla.console.topic_changes import Path
from ottla.console.views import View, unanswered
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition

_TYPES: Final = {"preferred": False, "unclean": True}


def elect(cluster: Cluster, _: Path, body: Body) -> View:
    """Elect leaders of the given partitions, or of all. Raises BadParameter, ClientError."""
    body.takes("type", "partitions", "all")
    kind, partitions, everything = body.text("type"), body.partitions("partitions"), body.flag("all")
    if kind not in _TYPES:
        raise BadParameter("type is preferred or unclean")
    if bool(partitions) is everything:
        raise BadParameter("name partitions, or all")
    outcomes = reassignments.elect(cluster, None if everything else partitions, unclean=_TYPES[kind])
    lines = []
    for where, error in sorted(outcomes.items()):
        is_needless = isinstance(error, Refused) and error.code is ErrorCode.ELECTION_NOT_NEEDED
        result = "elected" if error is None else "not needed" if is_needless else one_line(error)
        lines.append({**where._asdict(), "result": result, "failed": error is not None and not is_needless})
    return {"elections": lines}


def moves(cluster: Cluster) -> View:
    """The reassignments in progress. Raises ClientError."""
    found = sorted(reassignments.moves(cluster).items())
    return {"reassignments": [{**where._asdict(), **move._asdict()} for where, move in found]}


def planned_moves(cluster: Cluster, query: QueryParams) -> View:
    """A plan that balances topics over brokers, beside the current replicas. Nothing is moved. Raises BadParameter, ClientError."""
    topics = query.getlist("topic")
    if not topics:
        raise BadParameter("name the topics")
    partitions = [TopicPartition(topic, each) for topic in dict.fromkeys(topics) for each in cluster.partitions(topic)]
    current = reassignments.replicas_of(cluster, partitions)
    racks = {broker.node_id: broker.rack for broker in cluster.refresh([]).brokers}
    chosen = {number(each, "broker") for each in query.getlist("broker")}
    if chosen:
        unknown = sorted(str(each) for each in chosen if each not in racks)
        if unknown:
            raise BadParameter(f"there is no broker {', '.join(unknown)}; alive are {', '.join(map(str, sorted(racks)))}")
        racks = {broker: rack for broker, rack in racks.items() if broker in chosen}
    factor = number(query.get("replication_factor"), "replication_factor")
    plan = balanced(current, racks, factor or None)
    lines = [{**where._asdict(), "now": current[where], "planned": replicas} for where, replicas in plan.items()]
    return {"plan": to_json(plan), "partitions": lines}


def start_moves(cluster: Cluster, _: Path, body: Body) -> View:
    """Start the reassignment of a plan, in the format of Kafka's tool. Raises BadParameter, Conflict, ClientError."""
    body.takes("plan", "throttle", "additional")
    throttle, additional = body.optional_integer("throttle"), body.flag("additional")
    if throttle is not None and throttle < 1:
        raise BadParameter("throttle is a number of bytes per second, from 1 on")
    try:
        plan = from_json(json.dumps(body.raw("plan")))
    except (ClientError, RecursionError) as error:
        raise BadParameter(one_line(error)) from None
    if not plan:
        raise BadParameter("the plan has no partitions")
    current = reassignments.replicas_of(cluster, plan)
    check_brokers(cluster, plan.values())
    in_progress = reassignments.moves(cluster)
    if in_progress and not additional:
        raise Conflict(f"{_named(in_progress)} are being moved; wait, cancel that, or give additional")
    back = {where: move.target if (move := in_progress.get(where)) else current[where] for where in plan}
    try:
        if throttle is not None:
            reassignments.throttle(cluster, current, plan, throttle)
        _raise_first(reassignments.reassign(cluster, plan))
    except ClientError as error:
        if throttle is not None:  # they stay, as with Kafka's tool
            error.args = (f"{one_line(error)}; replication throttles may be left: remove them once nothing is being moved",)
        raise
    return {"started": len(plan), "plan_back": to_json(back)}


def cancel_moves(cluster: Cluster, _: Path, body: Body) -> View:
    """Cancel reassignments of the given partitions, or all of them, and remove the throttles with the last one.

    Raises BadParameter, ClientError.
    """
    body.takes("partitions", "all")
    partitions, everything = body.partitions("partitions"), body.flag("all")
    if bool(partitions) is everything:
        raise BadParameter("name partitions, or all")
    in_progress = reassignments.moves(cluster)
    wanted = list(in_progress) if everything else [where for where in partitions if where in in_progress]
    if wanted:
        _raise_first(reassignments.reassign(cluster, dict.fromkeys(wanted)))
    if set(wanted) == set(in_progress):
        try:
            _clear_throttles(cluster, wanted)
        except ClientError as error:  # of a broker that does not answer, which may be the reason to cancel
            raise ClientError(f"the moves are cancelled, and throttles are left: {one_line(error)}; remove them later") from None
    return {"cancelled": [where._asdict() for where in wanted]}


def clear_throttles(cluster: Cluster, _: Path, body: Body) -> View:
    """Remove the replication throttles of topics and of all live brokers, once nothing is moved. Raises Conflict, ClientError."""
    body.takes("topics")
    topics = body.texts("topics")
    in_progress = reassignments.moves(cluster)
    if in_progress:
        raise Conflict(f"{_named(in_progress)} are still being moved")
    reassignments.clear_throttles(cluster, topics)
    return {"topics": topics}


def _clear_throttles(cluster: Cluster, partitions: Iterable[TopicPartition]) -> None:
    topics = [where.topic for where in partitions]
    if topics:
        reassignments.clear_throttles(cluster, topics)


def _named(partitions: Mapping[TopicPartition, object]) -> str:
    names = [str(where) for where in partitions]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _raise_first(outcomes: Mapping[TopicPartition, ClientError | None]) -> None:
    errors = [error for error in outcomes.values() if error is not None]
    if errors:
        raise errors[0]


def transactions(cluster: Cluster, query: QueryParams) -> View:
    """The transactional ids of all coordinators, all or in some states. Coordinators that do not answer are named. Raises ClientError."""
    found, errors = reachable_transactions(cluster, states=query.getlist("state"))
    return {"transactions": [each._asdict() for each in found], **unanswered("not_examined", cluster, errors)}


def transaction(cluster: Cluster, name: str) -> View:
    """One transactional id: its producer, state and partitions. Raises ClientError."""
    found = describe_transaction(cluster, name)
    is_open = found.start_time_ms is not None and found.state in OPEN_STATES
    return {
        **found._asdict(),
        "open_for_ms": int(time.time() * 1000) - (found.start_time_ms or 0) if is_open else None,
        "partitions": [where._asdict() for where in found.partitions],
    }


def hanging_transactions(cluster: Cluster, query: QueryParams) -> View:
    """The transactions that are open on a partition while no coordinator will end them there. Raises BadParameter, ClientError.

    Producers are requested only of partitions whose last stable offset is below their end. Brokers that do not answer are named.
    """
    timeout_ms = number(query.get("max_timeout_ms"), "max_timeout_ms")
    now_ms = int(time.time() * 1000)
    led = [
        TopicPartition(topic.name or "", each.partition_index)
        for topic in all_topics(cluster)
        for each in topic.partitions
        if each.leader_id != NO_LEADER
    ]
    ends, errors = reachable_offsets(cluster, dict.fromkeys(led, LATEST))
    stable, more = reachable_offsets(cluster, dict.fromkeys(ends, LATEST), isolation=READ_COMMITTED)
    held = [where for where in stable if stable[where] < ends[where]]
    longest = DEFAULT_MAX_TIMEOUT_MS if timeout_ms is None else timeout_ms
    found = find_hanging(cluster, held, max_timeout_ms=longest, now_ms=now_ms)
    undecided = [str(each.partition) for each in found.undecided]
    notes = [*reasons({**errors, **more, **found.missing}), *map(one_line, found.coordinators)]
    if undecided:
        notes.append(f"whether the transactions on {some(undecided)} hang is unknown, because a coordinator did not answer")
    answer: View = {
        "held_back": [{**where._asdict(), "stable": stable[where], "end": ends[where]} for where in held],
        "hanging": [
            {
                **each.partition._asdict(),
                "producer_id": each.producer.producer_id,
                "producer_epoch": each.producer.producer_epoch,
                "start_offset": each.producer.start_offset,
                "idle_ms": now_ms - each.producer.last_timestamp,
                "transactional_id": each.transactional_id,
            }
            for each in found.hanging
        ],
    }
    return {**answer, "not_examined": notes} if notes else answer


def producers(cluster: Cluster, name: str, query: QueryParams) -> View:
    """The producers that the leader of a partition remembers. Raises BadParameter, ClientError."""
    where = TopicPartition(name, number(query.get("partition"), "partition") or 0)
    found = describe_producers(cluster, [where])[where]
    return {**where._asdict(), "producers": [each._asdict() for each in found]}


def abort(cluster: Cluster, _: Path, body: Body) -> View:
    """Write an abort marker for the open transaction that begins at an offset of a partition. Raises BadParameter, ClientError."""
    body.takes("topic", "partition", "start_offset", "confirm")
    where = TopicPartition(body.text("topic"), body.integer("partition"))
    body.confirmed(where.topic)
    marker = marker_of_transaction(cluster, where, body.integer("start_offset"))
    abort_transaction(cluster, where, marker)
    return {**where._asdict(), "producer_id": marker.producer_id}


def forget(cluster: Cluster, _: Path, body: Body) -> View:
    """Have the coordinator abort the transaction of a transactional id, and fence its producers. Raises BadParameter, ClientError."""
    body.takes("transactional_id", "confirm")
    name = body.text("transactional_id")
    body.confirmed(name)
    forget_transaction(cluster, name)
    return {"transactional_id": name}
