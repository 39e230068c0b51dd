"""Applies the records of one partition of `__remote_log_metadata` to the caches of the user partitions that are followed here.

The reader fetches from `position` on and gives the bytes to `take`. A user partition that is newly followed makes it rewind: the others
then skip the records that they have. All lookups of a user partition are refused until the position has reached the end that the metadata
partition had when it was followed (`target`), since an entry that is overlooked is a segment that is copied twice or lost to readers.
Where they had been before, the leader epoch tells if it is still the same log.

Records that cannot be read, and those that do not fit, are left out with a log line. Other brokers do the same.
"""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Iterable
from typing import Final

from ottla.pauses import is_over, pause
from ottla.protocol.records.batch import BatchHeader, crc_is_valid, next_batch_size, parse_header
from ottla.protocol.records.errors import CorruptRecord, RecordFormatError
from ottla.protocol.records.reader import iter_keys_and_values, record_data
from ottla.protocol.schema.wire import ProtocolError
from ottla.storage.remote.entries import TopicIdPartition
from ottla.storage.remote.metadata.lone_records import lone_record
from ottla.storage.remote.metadata.records import DELETION, PARTITION_FINISHED, SEGMENT, place_of, read_record
from ottla.storage.remote.metadata.segment_cache import RecordRefused, SegmentCache
from ottla.storage.remote.ports import MetadataNotReady

logger = logging.getLogger(__name__)

METADATA_TOPIC: Final = "__remote_log_metadata"
NAMED: Final = 10
"""Records of a partition that get a log line each when they are left out."""
NO_EPOCH: Final = -1
_NOWHERE: Final = 1 << 63
"""Behind all positions."""
_BATCHES_AT_ONCE: Final = 2
"""Batches between two looks at the time, 10 µs: a copy begins and ends, and one list grows. To look costs a twentieth of a batch."""


class Followed:
    """A user partition with its cache. Records before `from_offset` are in the cache already.

    A hidden one came from a snapshot and no one has asked for it yet, or its replica here was stopped. A broker that stops in a controlled
    way loses all its replicas before it writes the snapshots.
    """

    __slots__ = ("cache", "from_offset", "hidden_at", "is_ready")

    def __init__(self, cache: SegmentCache, from_offset: int = 0, hidden_at: float | None = None) -> None:
        self.cache = cache
        self.from_offset = from_offset
        self.hidden_at = hidden_at
        """Since when it is hidden, by the caller's clock."""
        self.is_ready = False


class MetadataLog:
    """See the module. `applied` counts records of followed partitions, `skipped` those that were left out."""

    def __init__(self, index: int, *, logs_skipped: bool = True) -> None:
        self.index = index
        self._logs_skipped = logs_skipped
        self.position = 0
        """The offset of the next record to read."""
        self.last_epoch = NO_EPOCH
        """The leader epoch of the record before `position`."""
        self.target: int | None = None
        """The end of the partition when a user partition was last followed; None if it has to be asked for."""
        self.generation = 0
        """Changes whenever the position moves back: bytes that were fetched before are of no use then."""
        self.followed: dict[bytes, Followed] = {}
        self._known_to = _NOWHERE
        """The furthest position that was read before the position moved back: caches have the records below it."""
        self._known_epoch = NO_EPOCH
        """The leader epoch of the record before that. If it has another one now, the log has lost records."""
        self.applied = 0
        self.skipped = 0
        self.first_skipped = ""
        """Names the first record that was left out, and why."""
        self._waiting: list[tuple[int, Future[None]]] = []
        self._unready: list[tuple[bytes, Future[None]]] = []
        """By user partition, the tasks of beginning replicas that wait for its entries."""

    @property
    def name(self) -> str:
        """The name of the partition, for the log."""
        return f"{METADATA_TOPIC}-{self.index}"

    @property
    def is_behind(self) -> bool:
        """Whether a user partition waits for records that were written before it was followed."""
        return self.target is None or self.position < self.target

    # -- which partitions are followed -------------------------------------------------------------------------------------

    def follow(self, partition: TopicIdPartition) -> None:
        """Reads the entries of a user partition from now on."""
        known = self.followed.get(place_of(partition))
        if known is not None:
            known.hidden_at = None
            return
        for each in self.followed.values():
            each.from_offset = max(each.from_offset, self.position)
        self.followed[place_of(partition)] = Followed(SegmentCache(partition))
        self._move(0)

    def know(self, partition: TopicIdPartition) -> None:
        """Holds the entries of a user partition whose first record comes now."""
        self.followed.setdefault(place_of(partition), Followed(SegmentCache(partition)))

    def unfollow(self, partition: TopicIdPartition, now: float) -> None:
        """Hides a user partition, which has no replica here any more."""
        known = self.followed.get(place_of(partition))
        if known is not None and known.is_ready:
            known.hidden_at = now
        else:
            place = place_of(partition)
            self.followed.pop(place, None)
            for awaited, future in self._unready:
                if awaited == place and not future.done():
                    future.set_exception(_not_followed(partition))

    def drop_hidden(self, before: float) -> None:
        """Forgets the user partitions that are hidden since then or longer."""
        if any(each.hidden_at is not None for each in self.followed.values()):
            self.followed = {place: each for place, each in self.followed.items() if each.hidden_at is None or each.hidden_at > before}

    def restore(self, position: int, last_epoch: int, caches: Iterable[SegmentCache], now: float) -> None:
        """Begins with the state of a snapshot, which has all records before `position`. Nothing has been read before."""
        assert self.position == 0
        for cache in caches:
            place = place_of(cache.partition)
            self.followed[place] = Followed(cache, position, None if place in self.followed else now)
        self.position, self.last_epoch = position, last_epoch
        self._move(min(each.from_offset for each in self.followed.values()) if self.followed else position)

    def _move(self, position: int) -> None:
        if position != self.position:
            if self.last_epoch != NO_EPOCH and (self._known_to == _NOWHERE or self.position > self._known_to):
                self._known_to, self._known_epoch = self.position, self.last_epoch
            self.last_epoch = NO_EPOCH
        self.position = position
        self.target = None
        self.generation += 1

    def begin_anew(self, start: int, *, keeps_entries: bool) -> None:
        """Reads everything from `start` on again, since the log is not the one that was read.

        The entries stay known if the topic was deleted, which is no reason to forget what lies in the remote store.
        """
        for each in self.followed.values():
            each.from_offset = 0
            if not keeps_entries:
                each.cache = SegmentCache(each.cache.partition)
                each.is_ready = False
        self.last_epoch = NO_EPOCH
        self._known_to = _NOWHERE
        self._move(start)

    def skip_to(self, start: int) -> None:
        """Goes on at the log's start offset, which is behind the position."""
        self.position = start
        self.last_epoch = NO_EPOCH
        if start >= self._known_to:
            self._known_to = _NOWHERE
        self._notify()

    def _compare(self) -> None:
        """The position is where this broker has been before, or behind that: begins anew if it was another log."""
        if (self.position, self.last_epoch) == (self._known_to, self._known_epoch):
            self._known_to = _NOWHERE
        else:
            self._on_lost_records()

    def _on_lost_records(self) -> None:
        logger.error("%s: records before offset %d were lost: all of it is read again", self.name, self._known_to)
        self.begin_anew(0, keeps_entries=False)

    # -- what is known -----------------------------------------------------------------------------------------------------

    def cache_of(self, partition: TopicIdPartition) -> SegmentCache | None:
        """Returns the entries of a user partition; None while they are incomplete."""
        found = self.followed.get(place_of(partition))
        return found.cache if found is not None and found.is_ready and found.hidden_at is None else None

    def on_end_offset(self, end: int) -> None:
        """Takes in the end that the partition has now, after the last user partition was followed."""
        if end < self._known_to != _NOWHERE:
            self._on_lost_records()
            return
        self.target = end
        self._notify()

    def has_applied(self, offset: int) -> bool:
        """Whether the record at this offset is in the caches."""
        return offset < self.position

    def when_applied(self, offset: int, future: Future[None]) -> None:
        """Completes the future as soon as the record at this offset is in the caches."""
        if self.has_applied(offset):
            future.set_result(None)
        else:
            self._waiting.append((offset, future))

    def when_ready(self, partition: TopicIdPartition, future: Future[None]) -> None:
        """Completes the future as soon as `cache_of` has the entries. Fails it with MetadataNotReady if they are followed no more."""
        place = place_of(partition)
        known = self.followed.get(place)
        if known is None or known.hidden_at is not None:
            future.set_exception(_not_followed(partition))
        elif known.is_ready:
            future.set_result(None)
        else:
            self._unready = [each for each in self._unready if not each[1].done()]  # those of former leader epochs
            self._unready.append((place, future))

    def _notify(self) -> None:
        if not self.is_behind:
            for each in self.followed.values():
                each.is_ready = True
            for _, future in self._unready:
                if not future.done():
                    future.set_result(None)
            self._unready.clear()
        if self._waiting:
            still = []
            for offset, future in self._waiting:
                if future.done():
                    continue
                if self.has_applied(offset):
                    future.set_result(None)
                else:
                    still.append((offset, future))
            self._waiting = still

    # -- records -----------------------------------------------------------------------------------------------------------

    async def take(self, data: bytes) -> None:
        """Applies whole batches that were fetched from the position on. Raises CorruptRecord for a wrong checksum."""
        generation = self.generation
        view = memoryview(data)
        at = left = 0
        try:
            while True:
                lone = lone_record(data, view, at)
                if lone is not None:
                    offset, leader_epoch, value, at = lone
                    if offset >= self.position:
                        self.take_record(value, offset)
                        self.position = offset + 1
                        self.last_epoch = leader_epoch
                else:
                    after = self._take_batch(data, at)
                    if after is None:
                        break
                    at = after
                if self.position >= self._known_to:
                    self._compare()
                    if generation != self.generation:
                        return
                left -= 1
                if left <= 0:
                    left = _BATCHES_AT_ONCE
                    if not is_over():
                        continue
                    self._notify()
                    await pause()
                    if generation != self.generation:
                        return
        finally:
            if generation == self.generation:
                self._notify()

    def _take_batch(self, data: bytes, at: int) -> int | None:
        """Applies the batch there, and returns where the next one is; None if it is not whole."""
        size = next_batch_size(data, at, len(data))
        if size is None:
            return None
        header = parse_header(data, at)
        if header.next_offset > self.position:
            self._take_records(data, at, header)
            self.position = header.next_offset
            self.last_epoch = header.partition_leader_epoch
        return at + size

    def _take_records(self, data: bytes, at: int, header: BatchHeader) -> None:
        offset = header.base_offset
        if not crc_is_valid(data, at):
            raise CorruptRecord(f"{self.name}: the checksum of the batch at offset {offset} is wrong")
        if header.is_control:
            return
        try:
            for _, value in iter_keys_and_values(record_data(data, at, header), header):
                self.take_record(value, offset)
                offset += 1
        except RecordFormatError as error:
            self._skip(offset, error)

    def take_record(self, value: bytes | None, offset: int) -> None:
        """Applies one record, of whose place in the log the caller takes care."""
        try:
            if value is None:
                raise ProtocolError("it has no value")
            kind, place, key, packed, state, broker_id, event_timestamp_ms, custom = read_record(value)
            followed = self.followed.get(place)
            if followed is None or offset < followed.from_offset:
                return
            self.applied += 1
            if kind == SEGMENT:
                followed.cache.add(key, packed)
            elif kind != DELETION:
                followed.cache.change(key, state, broker_id, event_timestamp_ms, custom)
            elif state == PARTITION_FINISHED:
                followed.cache = SegmentCache(followed.cache.partition)
        except (ProtocolError, RecordRefused) as error:
            self._skip(offset, error)

    def _skip(self, offset: int, why: Exception) -> None:
        self.skipped += 1
        named = f"{self.name}: the record at offset {offset} is left out: {why}"
        self.first_skipped = self.first_skipped or named
        if not self._logs_skipped:
            return
        if self.skipped <= NAMED:
            logger.error("%s", named)
        elif self.skipped == NAMED + 1:
            logger.error("%s: more records are left out; ottla_remote_log_metadata_skipped_records_total counts them", self.name)


def _not_followed(partition: TopicIdPartition) -> MetadataNotReady:
    return MetadataNotReady(f"the metadata of {partition.topic}-{partition.partition} are followed no more")
