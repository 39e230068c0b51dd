"""Changes groups for the console: plans a reset of offsets, carries out the plan that was shown, and deletes offsets and groups."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from starlette.datastructures import QueryParams

from ottla.cli.offset_reset import planned_offsets
from ottla.cli.times import parse_span, parse_time
from ottla.client.cluster import Cluster
from ottla.client.group_admin import delete_groups, describe_group
from ottla.client.group_offsets.kinds import known, requests_of
from ottla.console.answers import Conflict, one_line
from ottla.console.parameters import BadParameter, Body, number, signed
from ottla.console.topic_changes import Path
from ottla.console.views import View
from ottla.protocol.topic_partition import TopicPartition

INACTIVE: Final = ("Empty", "Dead")
_MODES: Final = ("earliest", "latest", "current", "offset", "shift", "time", "ago")


def planned_reset(cluster: Cluster, query: QueryParams) -> View:
    """The offsets that a reset would commit, beside the current ones and the range of each partition.

    Nothing is changed. Partitions whose leader does not answer are named. Raises BadParameter, ClientError.
    """
    group = query.get("group")
    if not group:
        raise BadParameter("group is missing")
    mode, topics, chosen = _mode(query), query.getlist("topic"), _chosen(query)
    described = describe_group(cluster, group)
    state, requests = described.state, requests_of(described.type)
    if "to_current" in mode and not requests.may_stay:
        raise BadParameter("to=current makes no sense for a share group: its position is not one offset; use to=offset")
    positions = requests.read(cluster, group)
    committed = known(positions)
    wanted = _wanted(cluster, topics, chosen, positions)
    remarks: list[str] = []
    planned = planned_offsets(cluster, wanted, committed, remark=remarks.append, **mode)
    missing = [{**where._asdict(), "error": one_line(error)} for where, error in planned.missing.items()]
    answer: View = {
        "group": group,
        "state": state,
        "can_be_applied": state in INACTIVE,
        "remarks": remarks,
        "offsets": [
            {
                **where._asdict(),
                "before": committed.get(where),
                "offset": offset,
                "start": planned.starts[where],
                "end": planned.ends[where],
            }
            for where, offset in planned.offsets.items()
        ],
    }
    return {**answer, "missing": missing} if missing else answer


def _mode(query: QueryParams) -> Mapping[str, Any]:
    """The arguments of `planned_offsets` for the one mode that the parameters give. Raises BadParameter."""
    mode, value = query.get("to") or "", query.get("value")
    if mode in ("earliest", "latest", "current"):
        return {f"to_{mode}": True}
    if mode not in _MODES:
        raise BadParameter(f"to is one of {', '.join(_MODES)}")
    if not value:
        raise BadParameter(f"to={mode} needs a value")
    now_ms = int(time.time() * 1000)
    try:
        if mode == "time":
            return {"to_time_ms": parse_time(value, now_ms)}
        if mode == "ago":
            return {"to_time_ms": max(now_ms - parse_span(value), 0)}  # brokers look up no earlier time
    except (ValueError, OverflowError) as error:
        raise BadParameter(str(error)) from None
    return {"to_offset": number(value, "value")} if mode == "offset" else {"shift_by": signed(value, "value")}


def _chosen(query: QueryParams) -> list[int]:
    """The partitions of the one named topic; all without any. Raises BadParameter."""
    found = [each for text in query.getlist("partition") if (each := number(text, "partition")) is not None]
    if found and len(query.getlist("topic")) != 1:
        raise BadParameter("partition needs exactly one topic")
    return found


def _wanted(
    cluster: Cluster, topics: Sequence[str], chosen: Sequence[int], positions: Iterable[TopicPartition]
) -> Sequence[TopicPartition]:
    """The partitions of the named topics, or with offsets of the group. Raises BadParameter, ClientError."""
    found = [TopicPartition(topic, each) for topic in dict.fromkeys(topics) for each in cluster.partitions(topic)]
    if not topics:
        found = sorted(positions)
    if chosen:
        missing = sorted(set(chosen) - {where.partition for where in found})
        if missing:
            raise BadParameter(f"topic {topics[0]} has no partition {', '.join(map(str, missing))}")
        found = [where for where in found if where.partition in chosen]
    if not found:
        raise BadParameter("the group has no offsets; name the topics")
    return found


def apply_reset(cluster: Cluster, _: Path, body: Body) -> View:
    """Commit offsets as they were shown. Raises BadParameter; Conflict if the group has changed since; ClientError."""
    body.takes("group", "offsets")
    group = body.text("group")
    offsets: dict[TopicPartition, int] = {}
    before: dict[TopicPartition, int | None] = {}
    for each in body.objects("offsets"):
        each.takes("topic", "partition", "before", "offset")
        where = TopicPartition(each.text("topic"), each.integer("partition"))
        offsets[where], before[where] = each.integer("offset"), each.optional_integer("before")
        if offsets[where] < 0:
            raise BadParameter("an offset is 0 or more")
    if not offsets:
        raise BadParameter("offsets is empty")
    described = describe_group(cluster, group)
    state, requests = described.state, requests_of(described.type)
    if state not in INACTIVE:
        raise Conflict(f"the offsets of group {group} can only be reset while it has no members; it is {state}. Stop its consumers")
    present = known(requests.read(cluster, group, offsets))
    for where, expected in before.items():
        found = present.get(where)
        if found != expected:
            raise Conflict(f"the offset of group {group} for {where} is {found} and no longer {expected}; look at the preview again")
    requests.move(cluster, group, offsets)
    return {"group": group, "offsets": [{**where._asdict(), "offset": offset} for where, offset in offsets.items()]}


def delete_group(cluster: Cluster, path: Path, body: Body) -> View:
    """Delete a group, whose name is repeated. Raises BadParameter, ClientError."""
    body.takes("confirm")
    body.confirmed(path["name"])
    error = delete_groups(cluster, [path["name"]])[path["name"]]
    if error is not None:
        raise error
    return {"group": path["name"]}


def forget_offsets(cluster: Cluster, _: Path, body: Body) -> View:
    """Delete a group's offsets of a topic, of all partitions or of some; the group's name is repeated.

    Raises BadParameter, ClientError.
    """
    body.takes("group", "topic", "partitions", "confirm")
    group, topic = body.text("group"), body.text("topic")
    body.confirmed(group)
    requests = requests_of(describe_group(cluster, group).type)
    wanted = [TopicPartition(topic, each) for each in body.integers("partitions")]
    if not wanted:
        wanted = [where for where in requests.read(cluster, group) if where.topic == topic]
    if not wanted:
        raise BadParameter(f"the group has no offsets of topic {topic}")
    outcomes = requests.delete(cluster, group, wanted)
    error = next(filter(None, outcomes.values()), None)
    if error is not None:
        raise error
    return {"group": group, "topic": topic, "partitions": sorted(where.partition for where in outcomes)}
