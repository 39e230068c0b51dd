"""Computes the new offsets of a group by the modes of Apache Kafka's kafka-consumer-groups --reset-offsets. Used by
`ottla groups`.

An offset outside of a partition's range is moved to the nearest valid one, with a remark.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from broker.client.cluster import TopicPartition
from broker.client.errors import ClientError

if TYPE_CHECKING:
    from broker.client.cluster import Cluster

Scenario = dict[TopicPartition, int]
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
) -> Scenario:
    """The new offset of each partition by the one given mode. Raises ClientError."""
    from broker.client.offsets import end_offsets, offsets_at, start_offsets

    wanted = list(partitions)
    ends = end_offsets(cluster, wanted)
    if to_latest:
        return ends
    starts = start_offsets(cluster, wanted)
    if to_earliest:
        return starts
    if to_time_ms is not None:
        return offsets_at(cluster, wanted, to_time_ms)
    if to_current:
        asked = {name: committed.get(name, ends[name]) for name in wanted}
    elif shift_by is not None:
        missing = [str(name) for name in wanted if name not in committed]
        if missing:
            raise ClientError(f"cannot shift the offsets of partitions without one: {', '.join(missing)}")
        asked = {name: committed[name] + shift_by for name in wanted}
    elif from_file is not None:
        asked = {name: from_file[name] for name in wanted}
    else:
        asked = dict.fromkeys(wanted, to_offset or 0)
    return {name: _within(name, offset, starts[name], ends[name], remark) for name, offset in asked.items()}


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
