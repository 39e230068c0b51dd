"""Computes the new offsets of a group by the modes of Apache Kafka's kafka-consumer-groups --reset-offsets. Used by
`ottla groups`.

An offset outside of a partition's range is moved to the nearest valid one, with a remark. A partition without a leader has no new offset.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.offsets import EARLIEST, LATEST, LEADER_SECONDS, reachable_offsets
from ottla.protocol.topic_partition import TopicPartition

Scenario = dict[TopicPartition, int]


class ResetPlan(NamedTuple):
    """The new offsets of a group, and the range of each of the partitions."""

    offsets: Scenario
    starts: Scenario
    ends: Scenario
    missing: dict[TopicPartition, ClientError]
    """The partitions without a leader that answers, which have no new offset, and the reasons."""


_WITH_GROUP = 4


def planned_offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    *,
    remark: Callable[[str], None],
    to_earliest: bool = False,
    to_latest: bool = False,
    to_current: bool = False,
    to_offset: int | None = None,
    shift_by: int | None = None,
    to_time_ms: int | None = None,
    from_file: Mapping[TopicPartition, int] | None = None,
    seconds: float = LEADER_SECONDS,
) -> ResetPlan:
    """The new offset of each partition by the one given mode. Leaders have these seconds to answer. Raises ClientError."""
    wanted = list(partitions)
    if shift_by is not None:
        lacking = [str(name) for name in wanted if name not in committed]
        if lacking:
            raise ClientError(f"cannot shift the offsets of partitions without one: {', '.join(lacking)}")
    ends, missing = reachable_offsets(cluster, dict.fromkeys(wanted, LATEST), seconds=seconds)
    starts, more = reachable_offsets(cluster, dict.fromkeys(ends, EARLIEST), seconds=seconds)
    missing |= more
    reached = [name for name in wanted if name in starts]
    if to_time_ms is not None:
        at, more = reachable_offsets(cluster, dict.fromkeys(reached, to_time_ms), seconds=seconds)
        missing |= more
        # -1: no record is at that time or later
        return ResetPlan({name: ends[name] if at[name] < 0 else at[name] for name in reached if name in at}, starts, ends, missing)
    if to_latest or to_earliest:
        edge = ends if to_latest else starts
        return ResetPlan({name: edge[name] for name in reached}, starts, ends, missing)
    if to_current:
        asked = {name: committed.get(name, ends[name]) for name in reached}
    elif shift_by is not None:
        asked = {name: committed[name] + shift_by for name in reached}
    elif from_file is not None:
        asked = {name: from_file[name] for name in reached}
    else:
        asked = dict.fromkeys(reached, to_offset or 0)
    offsets = {name: _within(name, offset, starts[name], ends[name], remark) for name, offset in asked.items()}
    return ResetPlan(offsets, starts, ends, missing)


def _within(name: TopicPartition, offset: int, start: int, end: int, remark: Callable[[str], None]) -> int:
    if offset > end:
        remark(f"{name}: offset {offset} is beyond the end; using {end}")
        return end
    if offset < start:
        remark(f"{name}: offset {offset} is before the beginning; using {start}")
        return start
    return offset


def read_plan(lines: Iterable[str], group: str) -> Scenario:
    """Parses `topic,partition,offset` lines, or `group,topic,partition,offset`, of which those of other groups are
    ignored. Raises ClientError."""
    found: Scenario = {}
    rows = csv.reader(lines)
    try:
        for line in rows:
            if not line or (len(line) == _WITH_GROUP and line[0] != group):
                continue
            topic, partition, offset = line[1:] if len(line) == _WITH_GROUP else line
            if not partition.strip().isdecimal() or not offset.strip().isdecimal():
                raise ValueError("a number is missing")
            found[TopicPartition(topic, int(partition))] = int(offset)
    except UnicodeError:
        raise ClientError("the file is not UTF-8") from None
    except csv.Error as error:
        raise ClientError(f"line {rows.line_num} of the file is not topic,partition,offset: {error}") from None
    except ValueError:
        raise ClientError(f"line {rows.line_num} of the file is not topic,partition,offset") from None
    if not found:
        raise ClientError(f"the file has no offsets for group {group}")
    return found
