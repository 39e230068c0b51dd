"""Parses the start and the end of `ottla consume` in each partition, from texts like those of kcat and rpk.

-o  start | end | 123 | +10 (after the first ten) | -10 (the last ten) | @TIME        --until  end | 123 | @TIME
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ottla.cli.options import is_number
from ottla.cli.times import parse_time
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.protocol.topic_partition import TopicPartition

POLL_SECONDS: Final = 0.5
_STARTS = {"start", "beginning", "earliest", "oldest"}
_ENDS = {"end", "latest", "newest"}


class Limits(NamedTuple):
    """The limits of reading: these offsets and this time, both exclusive."""

    offsets: dict[TopicPartition, int] | None
    time_ms: int | None


class LastRecords:
    """Finds the last records of partitions. Markers, aborted records and gaps of compaction take offsets, too, so it has to read backwards,
    in windows that double."""

    def __init__(self, cluster: Cluster, count: int, isolation: int) -> None:
        self._cluster = cluster
        self._count = count
        self._isolation = isolation

    def positions(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset of the last but `count` record of each partition; its start if it has fewer. Raises ClientError."""
        found = {name: ends[name] if not self._count else starts[name] for name in starts}
        missing = {name: self._count for name in starts if self._count and starts[name] < ends[name] - self._count}
        read_from = dict(ends)
        while missing:
            windows = {
                name: (max(starts[name], ends[name] - max(self._count, 2 * (ends[name] - read_from[name]))), read_from[name])
                for name in missing
            }
            for name, offsets in self._last_offsets(windows, missing).items():
                read_from[name] = windows[name][0]
                missing[name] -= len(offsets)
                if not missing[name]:
                    found[name] = offsets[0]
                if not missing[name] or read_from[name] == starts[name]:
                    del missing[name]
        return found

    def _last_offsets(
        self, windows: Mapping[TopicPartition, tuple[int, int]], wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, deque[int]]:
        """The offsets of the last records of each window, as many as are wanted."""
        from ottla.client.fetcher import Fetcher, FetchSettings

        found: dict[TopicPartition, deque[int]] = {name: deque(maxlen=wanted[name]) for name in windows}
        with Fetcher(self._cluster, {name: begin for name, (begin, _) in windows.items()}, FetchSettings(self._isolation)) as fetcher:
            while fetcher.positions:
                for batch in fetcher.poll(POLL_SECONDS):
                    name, end = batch.partition, windows[batch.partition][1]
                    found[name].extend(record.offset for record in batch.records if record.offset < end)
                    if batch.next_offset >= end:
                        fetcher.positions.pop(name, None)
        return found


def start_positions(cluster: Cluster, partitions: Sequence[TopicPartition], text: str, isolation: int) -> dict[TopicPartition, int]:
    """The first offset to read of each partition. Raises UsageError, ClientError."""
    from ottla.client.offsets import end_offsets, offsets_at, start_offsets

    if text in _STARTS:
        return start_offsets(cluster, partitions)
    if text in _ENDS:
        return end_offsets(cluster, partitions, isolation=isolation)
    if text.startswith(("@", "s@")):
        return offsets_at(cluster, partitions, _time(text.partition("@")[2]))
    if is_number(text):
        return _within(cluster, partitions, int(text))
    if text.startswith("+") and is_number(text[1:]):
        starts, ends = start_offsets(cluster, partitions), end_offsets(cluster, partitions, isolation=isolation)
        return {name: min(starts[name] + int(text[1:]), ends[name]) for name in partitions}
    if text.startswith("-") and is_number(text[1:]):
        starts, ends = start_offsets(cluster, partitions), end_offsets(cluster, partitions, isolation=isolation)
        return LastRecords(cluster, int(text[1:]), isolation).positions(starts, ends)
    raise click.UsageError(f"--offset {text!r} is none of start, end, N, +N, -N and @TIME.")


def _within(cluster: Cluster, partitions: Sequence[TopicPartition], offset: int) -> dict[TopicPartition, int]:
    """The offset in each partition. Raises ClientError for a partition without this offset, unless its next record gets it."""
    from ottla.client.offsets import end_offsets, start_offsets

    starts, ends = start_offsets(cluster, partitions), end_offsets(cluster, partitions)
    outside = [name for name in partitions if not starts[name] <= offset <= ends[name]]
    if outside:
        ranges = (f"{name} has offsets from {starts[name]} to {ends[name]}" for name in outside)
        raise ClientError("\n".join(f"offset {offset} is out of range: {text}" for text in ranges))
    return dict.fromkeys(partitions, offset)


def limits(cluster: Cluster, partitions: Sequence[TopicPartition], text: str | None, isolation: int) -> Limits:
    """The limits of reading. Raises UsageError, ClientError."""
    from ottla.client.offsets import end_offsets

    if text is None:
        return Limits(None, None)
    ends = end_offsets(cluster, partitions, isolation=isolation)
    if text in _ENDS:
        return Limits(ends, None)
    if is_number(text):
        return Limits(dict.fromkeys(partitions, int(text)), None)
    if text.startswith(("@", "e@")):
        return Limits(ends, _time(text.partition("@")[2]))
    raise click.UsageError(f"--until {text!r} is none of end, OFFSET and @TIME.")


def _time(text: str) -> int:
    try:
        return parse_time(text, int(time.time() * 1000))
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
