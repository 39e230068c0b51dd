"""Records the actions and observations of clients on one topic, and judges them.

Producers call `sent` before and `acknowledged` after, consumers call `polled`; `violations` names every broken rule:

- lost: an acknowledged record that a consumer which read to the end did not read (`came_to_the_end`; without such a call, any consumer);
- vanished: a record that one consumer read, acknowledged or not, and a consumer which read to the end did not;
- changed: two records were read at the same offset;
- duplicate: a record that is, or was acknowledged, at two offsets;
- reordered: records of one producer that are not in the order of sending;
- unseen: a record was read that no producer sent;
- misplaced: a record was read in another partition than that of its sending, or at another offset than the acknowledged one;
- backwards: within one run of a consumer, an offset that is not above the last one of its partition;
- gap: within one run of a consumer, an offset that is above the next one.

An unacknowledged record may exist or not, but only once, and in its place. Pure, except for the lock: clients call from their threads. The
topics have no transactions and a record at every offset, except those that compaction and deletion may have removed (`may_be_gone`).
"""

import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

UNKNOWN_OFFSET = -1
"""Where a record stands that a retry found already written, too long ago for the broker to say where."""


class Record(NamedTuple):
    """A value: the producer's name and how many it had sent before. Its bytes are `encode`."""

    producer: str
    sequence: int

    def encode(self, size: int = 0) -> bytes:
        """At least `size` bytes."""
        return f"{self.producer}:{self.sequence}:".encode().ljust(size, b".")


def decode(value: bytes) -> Record:
    """Raises ValueError."""
    producer, sequence, _ = value.split(b":", 2)
    return Record(producer.decode(), int(sequence))


class Place(NamedTuple):
    """Where a record stands."""

    partition: int
    offset: int


class History:
    """See the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: dict[Record, int] = {}
        self._acknowledged: dict[Record, Place] = {}
        self._acknowledged_again: list[tuple[Record, Place, Place]] = []
        self._complete: str | None = None
        self._polled: dict[str, list[tuple[Record, Place]]] = defaultdict(list)
        self._excused: set[Place] = set()

    def sent(self, record: Record, partition: int) -> None:
        """A producer is about to send."""
        with self._lock:
            self._sent[record] = partition

    def acknowledged(self, record: Record, place: Place) -> None:
        """A producer got the acknowledgement of a record."""
        with self._lock:
            before = self._acknowledged.get(record, place)
            self._acknowledged[record] = place
            if UNKNOWN_OFFSET not in {before.offset, place.offset} and before != place:
                self._acknowledged_again.append((record, before, place))

    def polled(self, consumer: str, record: Record, place: Place) -> None:
        """One run of a consumer, named anew whenever it begins elsewhere, was given a record."""
        with self._lock:
            self._polled[consumer].append((record, place))

    def came_to_the_end(self, consumer: str) -> None:
        """This run of a consumer began at the beginning, and read all records after the last write; of several runs, the last counts."""
        with self._lock:
            self._complete = consumer

    def may_be_gone(self, places: Iterable[Place]) -> None:
        """From now on these need not be there any more: a later record has the same key, or they were to be deleted."""
        with self._lock:
            self._excused.update(places)

    @property
    def acknowledged_count(self) -> int:
        """So far."""
        with self._lock:
            return len(self._acknowledged)

    def acknowledged_end(self, partition: int) -> int:
        """Behind the last offset that was acknowledged: where a reading must not end before."""
        with self._lock:
            return max((place.offset + 1 for place in self._acknowledged.values() if place.partition == partition), default=0)

    def polled_count(self, consumer: str) -> int:
        """So far."""
        with self._lock:
            return len(self._polled[consumer])

    def places(self) -> set[Place]:
        """Where anything was read."""
        with self._lock:
            return set(self._read())

    def violations(self) -> list[str]:
        """One line per broken rule and record. Ask when a consumer has read everything."""
        with self._lock:
            return [*self._lost(), *self._vanished(), *self._placed_wrongly(), *self._reordered(), *self._not_in_turn()]

    def _read(self) -> dict[Place, Record]:
        return {place: record for polled in self._polled.values() for record, place in polled}

    def _lost(self) -> list[str]:
        if self._complete is None:
            seen = set(self._read().values())
        else:
            seen = {record for record, _ in self._polled[self._complete]}
        return [
            f"lost: {record} was acknowledged at {place} and is not there"
            for record, place in sorted(self._acknowledged.items())
            if record not in seen and place not in self._excused
        ]

    def _vanished(self) -> list[str]:
        if self._complete is None:
            return []
        places = {place for _, place in self._polled[self._complete]}
        return [
            f"vanished: {record} was read at {place}, where {self._complete} found nothing"
            for place, record in sorted(self._read().items())
            if place not in places and place not in self._excused
        ]

    def _misses(self, partition: int, start: int, end: int) -> bool:
        return any(Place(partition, offset) not in self._excused for offset in range(start, end))

    def _placed_wrongly(self) -> list[str]:
        found = []
        places: dict[Record, set[Place]] = defaultdict(set)
        at: dict[Place, set[Record]] = defaultdict(set)
        for polled in self._polled.values():
            for record, place in polled:
                places[record].add(place)
                at[place].add(record)
        for place, records in sorted(at.items()):
            if len(records) > 1:
                found.append(f"changed: at {place} stood {' and '.join(map(str, sorted(records)))}")
        for record, before, again in self._acknowledged_again:
            found.append(f"duplicate: {record} was acknowledged at {before} and at {again}")
        for record, where in sorted(places.items()):
            if record not in self._sent:
                found.append(f"unseen: {record} was never sent and is at {sorted(where)}")
            elif any(place.partition != self._sent[record] for place in where):
                found.append(f"misplaced: {record} was sent to partition {self._sent[record]} and is at {sorted(where)}")
            if len(where) > 1:
                found.append(f"duplicate: {record} is at {sorted(where)}")
            told = self._acknowledged.get(record)
            if told is not None and told.offset != UNKNOWN_OFFSET and told not in where:
                found.append(f"misplaced: {record} was acknowledged at {told} and is at {sorted(where)}")
        return found

    def _reordered(self) -> list[str]:
        found = []
        last: dict[tuple[str, int], int] = {}
        for place, record in sorted(self._read().items()):
            before = last.get((record.producer, place.partition), -1)
            if record.sequence < before:
                found.append(f"reordered: {record} is at {place}, behind number {before}")
            last[record.producer, place.partition] = max(before, record.sequence)
        return found

    def _not_in_turn(self) -> list[str]:
        found = []
        for consumer, polled in self._polled.items():
            last: dict[int, int] = {}
            highest: dict[int, int] = {}
            for record, (partition, offset) in polled:
                if offset <= last.get(partition, -1):
                    found.append(f"backwards: {consumer} was given {record} at {offset} of partition {partition} after {last[partition]}")
                elif self._misses(partition, highest.get(partition, offset) + 1, offset):
                    found.append(f"gap: {consumer} was given {record} at {offset} of partition {partition} after {highest[partition]}")
                last[partition] = offset
                highest[partition] = max(offset, highest.get(partition, offset))
        return found
