"""Reads records for the console: searches with limits, live views, and exports, all in steps that a caller can end.

A step is one poll of the brokers. Between two steps only the connections and the positions are kept.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Final, NamedTuple

from ottla.cli.doctor.kinds import some
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, ConnectionLost, Refused
from ottla.client.fetcher import Fetcher, FetchSettings, OffsetGone
from ottla.client.offsets import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    reachable_offsets,
    start_offsets,
)
from ottla.console.answers import one_line
from ottla.console.decoding import SHOWN_HEADERS, Decoder
from ottla.console.record_filter import RecordFilter
from ottla.console.views import View
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import TimestampType
from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition

MAX_RECORDS: Final = 500
"""Records in an answer."""
MAX_SCANNED_RECORDS: Final = 500_000
"""Records that one search reads."""
MAX_SCANNED_BYTES: Final = 256 * 1024 * 1024
"""Bytes of keys, values and headers that one search reads."""
MAX_SEARCH_SECONDS: Final = 20.0
"""Time of one search, seconds."""
FILTERED_OFFSETS: Final = 10_000
"""Last offsets of a partition that a search with a filter and without a beginning reads."""
MAX_LIVE_SECONDS: Final = 3600.0
"""Time of a live view, or of an export, seconds."""
SEARCH_LEADER_SECONDS: Final = 1.0
"""Time for a partition that has lost its leader while a search reads it, seconds; the page says which are left out."""
_LONG_LEADER_SECONDS: Final = 15.0
"""Time for a partition that has lost its leader while it is read, seconds; a live view or an export waits longer than a search."""
STEP_RECORDS: Final = 10_000
"""Records that are read between two checks of the limits, and of the client's presence."""
_DECODING_SECONDS: Final = 0.1
"""Time after which a search that decodes its records can be cancelled, seconds."""
_FETCH: Final = FetchSettings(max_bytes=4 * 1024 * 1024, max_partition_bytes=1024 * 1024)
_POLL_SECONDS: Final = 0.5


class Query(NamedTuple):
    """The records that a request asks for. Without `offset` and `timestamp_ms` these are the last ones."""

    topic: str
    partitions: tuple[int, ...] = ()
    """All if it is empty."""
    offset: int | None = None
    timestamp_ms: int | None = None
    limit: int = 50
    is_committed: bool = False
    key_form: str = "auto"
    value_form: str = "auto"
    selected: RecordFilter = RecordFilter()
    starts: Mapping[int, int] | None = None
    """By partition the offset at which the search goes on; partitions that are not named were read already."""
    ends: Mapping[int, int] | None = None
    """By partition an offset that ends it earlier."""

    @property
    def has_beginning(self) -> bool:
        """Whether the first matching records are requested, and not the last ones."""
        return self.offset is not None or self.timestamp_ms is not None or self.starts is not None

    @property
    def isolation(self) -> int:
        """The isolation level of consumers."""
        return READ_COMMITTED if self.is_committed else READ_UNCOMMITTED


class Found(NamedTuple):
    """A selected record."""

    where: TopicPartition
    record: Record
    timestamp_type: TimestampType
    header_count: int = 0
    """Number of its headers, also of those that are no longer there."""
    order_ms: int = 0
    """The largest timestamp of its partition up to this record, among those that were selected."""


class Scan:
    """Reads partitions from their positions on, and selects records. Counts what it reads.

    `missing` has the partitions that are left out, because their leaders did not answer.
    """

    def __init__(
        self,
        cluster: Cluster,
        query: Query,
        monotonic: Callable[[], float] = time.monotonic,
        leader_seconds: float = _LONG_LEADER_SECONDS,
    ) -> None:
        """Ask for the range of each partition. Raises ClientError if none has one, or if one does not exist.

        `leader_seconds` is the time after which a partition without a leader is left out.
        """
        self._cluster = cluster
        self._query = query
        self._monotonic = monotonic
        # Before the fetcher gives up.
        self._leader_seconds = min(leader_seconds, cluster.timeout_seconds / 2)
        self.missing: dict[TopicPartition, ClientError] = {}
        wanted = [TopicPartition(query.topic, each) for each in query.partitions or cluster.partitions(query.topic)]
        starts = self._offsets(dict.fromkeys(wanted, EARLIEST))
        ends = self._offsets(dict.fromkeys(starts, LATEST))
        if query.ends is not None:
            ends = {each: min(end, max(query.ends.get(each.partition, end), starts[each])) for each, end in ends.items()}
        self.positions = self._first(starts, ends)
        self.starts = {each: starts[each] for each in self.positions}
        self.ends = {each: ends[each] for each in self.positions}
        self.first = dict(self.positions)
        """The first offsets that are read."""
        if self.missing and not self.positions:
            raise next(iter(self.missing.values()))
        self.records = 0
        self.bytes = 0

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets of the partitions that can be reached."""
        found, errors = reachable_offsets(self._cluster, wanted, isolation=self._query.isolation)
        self.missing |= errors
        return found

    def _first(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        query = self._query
        if query.starts is not None:
            return {each: min(max(query.starts.get(each.partition, end), starts[each]), end) for each, end in ends.items()}
        if query.timestamp_ms is not None:
            at_time = self._offsets(dict.fromkeys(ends, query.timestamp_ms))
            late = {each: ends[each] for each, at in at_time.items() if at < 0}
            return {each: min(max(at, starts[each]), ends[each]) for each, at in (at_time | late).items()}
        if query.offset is not None:
            return {each: min(max(query.offset, starts[each]), end) for each, end in ends.items()}
        last = query.limit if query.selected.is_trivial else FILTERED_OFFSETS
        return {each: max(starts[each], end - last) for each, end in ends.items()}

    def to_the_end(self) -> Iterator[list[Found]]:
        """The selected records of each step, until all partitions are read up to the ends that they had. Raises ClientError."""
        positions = {each: at for each, at in self.positions.items() if at < self.ends[each]}
        yield from self._steps(positions, has_end=True)

    def on_and_on(self) -> Iterator[list[Found]]:
        """The selected records of each step, without an end. Raises ClientError."""
        yield from self._steps(dict(self.positions), has_end=False)

    def _steps(self, positions: dict[TopicPartition, int], *, has_end: bool) -> Iterator[list[Found]]:
        fetcher = Fetcher(self._cluster, positions, _FETCH._replace(isolation=self._query.isolation))
        progress_at = self._monotonic()
        try:
            while positions:
                before = self.records, dict(positions)
                yielded_at = self.records
                found: list[Found] = []
                try:
                    for batch in fetcher.poll(_POLL_SECONDS):
                        end = self.ends[batch.partition] if has_end else None
                        found += self._selected(batch.partition, batch.records, batch.timestamp_type, end)
                        if self.records - yielded_at >= STEP_RECORDS:
                            self.positions.update(positions)
                            yield found
                            yielded_at, found = self.records, []
                except OffsetGone as gone:  # retention was faster
                    positions.update(start_offsets(self._cluster, [gone.partition]))
                self.positions.update(positions)
                if before != (self.records, positions):
                    progress_at = self._monotonic()
                elif has_end and self._monotonic() - progress_at > self._cluster.timeout_seconds:
                    where = next(iter(positions))
                    raise ConnectionLost(f"the leader of {where} gave no record within {self._cluster.timeout_seconds:g} s")
                for each, error in fetcher.failing(self._leader_seconds).items():
                    self.missing[each] = error
                    del positions[each]
                if has_end:
                    for each in [each for each, at in positions.items() if at >= self.ends[each]]:
                        del positions[each]
                yield found
        finally:
            fetcher.close()

    def _selected(self, where: TopicPartition, records: list[Record], timestamp_type: TimestampType, end: int | None) -> Iterator[Found]:
        for record in records:
            if end is not None and record.offset >= end:
                return
            self.records += 1
            self.bytes += len(record.key or b"") + len(record.value or b"")
            if record.headers:
                self.bytes += sum(len(name) + len(value or b"") for name, value in record.headers)
            if self._query.selected.takes(record):
                yield Found(where, record, timestamp_type, len(record.headers))


class Search:
    """Collects the records of an answer, within limits of records, bytes and time."""

    def __init__(self, cluster: Cluster, query: Query, decoder: Decoder, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Ask for the range of each partition. Raises ClientError."""
        self._query = query
        self._decoder = decoder
        self._monotonic = monotonic
        self._until = monotonic() + min(cluster.timeout_seconds, MAX_SEARCH_SECONDS)
        self._scan = Scan(cluster, query, monotonic, SEARCH_LEADER_SECONDS)
        self._found: deque[Found] = deque(maxlen=None if query.has_beginning else query.limit)
        self._stopped_by: str | None = None
        self._views: list[View] = []
        self._selected: Counter[TopicPartition] = Counter()
        """The number of selected records of each partition, also of those that the answer has no place for."""
        self._latest: dict[TopicPartition, int] = {}
        """The largest timestamp of the selected records of each partition."""

    def steps(self) -> Generator[None, None, None]:
        """Read until the search is complete, or a limit is reached; then decode the records of the answer. Raises ClientError."""
        for step in self._scan.to_the_end():
            found = [self._placed(_shown(each)) for each in step]
            self._selected.update(each.where for each in found)
            if self._query.has_beginning:
                self._found.extend(found)
            else:
                last = sorted([*self._found, *found], key=self._order)
                self._found.clear()
                self._found.extend(last)
            self._stopped_by = self._limit()
            if self._stopped_by is not None:
                break
            yield
        began_at = self._monotonic()
        for each in list(self._found)[: self._query.limit]:
            self._views.append(record_view(each, self._query, self._decoder))
            if self._monotonic() - began_at > _DECODING_SECONDS:
                yield
                began_at = self._monotonic()

    def _placed(self, found: Found) -> Found:
        """The record with its place among those of other partitions."""
        self._latest[found.where] = latest = max(self._latest.get(found.where, found.record.timestamp), found.record.timestamp)
        return found._replace(order_ms=latest)

    @staticmethod
    def _order(found: Found) -> tuple[int, TopicPartition, int]:
        """By time over several partitions; in one partition by offset, because timestamps need not grow."""
        return found.order_ms, found.where, found.record.offset

    def _limit(self) -> str | None:
        if self._query.has_beginning and len(self._found) >= self._query.limit:
            return "limit"
        if self._scan.records >= MAX_SCANNED_RECORDS:
            return "records"
        if self._scan.bytes >= MAX_SCANNED_BYTES:
            return "bytes"
        return "seconds" if self._monotonic() >= self._until else None

    def answer(self) -> View:
        """The records that were found. `next` has the offsets at which the search continues, if a limit has ended it."""
        after = dict(self._scan.positions)
        for left_out in list(self._found)[self._query.limit :]:
            after[left_out.where] = min(after[left_out.where], left_out.record.offset)
        partitions = [
            {
                "partition": where.partition,
                "start": start,
                "end": self._scan.ends[where],
                "next": min(after[where], self._scan.ends[where]),
                "older": self._older(where),
            }
            for where, start in self._scan.starts.items()
        ]
        return {
            "topic": self._query.topic,
            "partitions": partitions,
            "records": self._views,
            "scanned": {"records": self._scan.records, "bytes": self._scan.bytes},
            "stopped_by": self._stopped_by,
            "missing": missing_view(self._scan.missing),
        }

    def _older(self, where: TopicPartition) -> int | None:
        """The offset before which older records of a partition are that the answer does not have; None if there are none."""
        shown = [each.record.offset for each in list(self._found)[: self._query.limit] if each.where == where]
        if len(shown) == self._selected[where]:
            before = self._scan.first[where]
        else:
            before = min(shown, default=self._scan.ends[where])
        return before if before > self._scan.starts[where] else None


def missing_view(missing: Mapping[TopicPartition, ClientError]) -> list[View]:
    """Partitions that are left out, with the reason of each."""
    return [{"partition": where.partition, "error": one_line(error)} for where, error in sorted(missing.items())]


def _shown(found: Found) -> Found:
    """The record with the headers that can be shown: a search keeps many records, and small headers are large objects."""
    if found.header_count <= SHOWN_HEADERS:
        return found
    return found._replace(record=found.record._replace(headers=found.record.headers[:SHOWN_HEADERS]))


def record_view(found: Found, query: Query, decoder: Decoder) -> View:
    """A record for the page."""
    decoded = decoder.record(found.record, query.key_form, query.value_form)
    return {"partition": found.where.partition, **decoded, "header_count": found.header_count}


class LiveStep(NamedTuple):
    """New records of a live view, and partitions that it leaves out from now on."""

    records: list[View]
    missing: list[View]


def live(
    cluster: Cluster, query: Query, decoder: Decoder, monotonic: Callable[[], float] = time.monotonic
) -> Generator[LiveStep, None, None]:
    """New records in steps, from the end or from where the query begins. Raises ClientError.

    The first step is empty: each record that is written from then on is in a later one. A reader that is slower than the topic gets all
    records late: the next step begins when the last one was taken.
    """
    until = monotonic() + MAX_LIVE_SECONDS
    scan = Scan(cluster, query, monotonic)
    if not query.has_beginning:
        scan.positions = dict(scan.ends)
    yield LiveStep([], [])
    said = 0
    for found in scan.on_and_on():
        missing = dict(list(scan.missing.items())[said:])
        said += len(missing)
        yield LiveStep([record_view(each, query, decoder) for each in found], missing_view(missing))
        if monotonic() >= until:
            return
    raise next(iter(scan.missing.values()))  # it has left out all partitions


def whole(cluster: Cluster, query: Query, part: str) -> bytes | None:
    """All bytes of the key or the value of the record at the offset of the query. Raises ClientError; Refused if there is none."""
    (partition,), offset = query.partitions, query.offset or 0
    one = Query(query.topic, query.partitions, offset=offset, is_committed=query.is_committed, ends={partition: offset + 1})
    for found in Scan(cluster, one, leader_seconds=SEARCH_LEADER_SECONDS).to_the_end():
        for each in found:
            if each.record.offset == offset:
                data = each.record.key if part == "key" else each.record.value
                return None if data is None else bytes(data)
    raise Refused(f"offset {offset} of {TopicPartition(query.topic, partition)}", ErrorCode.RESOURCE_NOT_FOUND)


def export(
    cluster: Cluster,
    query: Query,
    line: Callable[[TopicPartition, Record, TimestampType], str],
    monotonic: Callable[[], float] = time.monotonic,
) -> Generator[list[str], None, None]:
    """All selected records up to the present ends as lines of a file, in steps. Raises ClientError, also if partitions were left out."""
    until = monotonic() + MAX_LIVE_SECONDS
    scan = Scan(cluster, query, monotonic)
    if not query.has_beginning:
        scan.positions = dict(scan.starts)
    for found in scan.to_the_end():
        yield [line(each.where, each.record, each.timestamp_type) for each in found]
        if monotonic() >= until:
            raise ClientError(f"an export ends after {MAX_LIVE_SECONDS:g} s; go on from the last offsets")
    if scan.missing:
        (first, error), *_ = sorted(scan.missing.items())
        names = some([str(where.partition) for where in sorted(scan.missing)])
        raise ClientError(f"the records of partition {names} of {first.topic} are missing: {one_line(error)}")
