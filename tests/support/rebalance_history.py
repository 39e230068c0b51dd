"""Judges the actions of a group's members, and the records that the broker wrote of them, by rules that no rebalance may break.

- In one generation only one member gets a record.
- No member gets a record that was committed in an earlier generation.
- Every record reaches a member.
- In `__consumer_offsets`: the committed offset of a partition never goes back, generations follow each other, and in each no partition is
  assigned twice.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from ottla.coordination.groups.offset_records import OffsetKey, read_offset_value
from ottla.coordination.groups.records import GroupKey, read_group_value, read_key
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.reader import iter_records
from tests.support.rebalance_members import Member, MemberProcess, Partition, Seen

SECONDS = 90.0


class History:
    """Polls members, commits for them, and keeps what happened. At its end it closes them."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Seen]] = []
        self.commits: list[tuple[int, Partition, int]] = []
        self._names: dict[int, str] = {}
        self._members: list[Member | MemberProcess] = []
        self._generations: dict[str, int] = {}
        self._positions: dict[str, dict[Partition, int]] = defaultdict(dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for member in self._members:
            member.close()

    def values(self) -> set[int]:
        """The values of all records that reached a member."""
        return {seen.value for _, seen in self.seen}

    def poll(self, *members: Member | MemberProcess) -> None:
        """Poll each member once. A member in this process commits the records that it has read."""
        for member in members:
            seen = member.poll()
            self.note(member, seen)
            if seen and not isinstance(member, MemberProcess):
                self.commit(member)

    def note(self, member: Member | MemberProcess, seen: Sequence[Seen]) -> None:
        """A member was given these records."""
        name = self._name(member)
        if seen:
            self._positions[name].clear()  # what it read before is committed, and may be another's by now
        for each in seen:
            # A member that is losing its membership has no generation any more, but its records belong to its last one.
            generation = self._generations[name] = each.generation if each.generation >= 0 else self._generations.get(name, -1)
            self.seen.append((name, each._replace(generation=generation)))
            self._positions[name][each.topic, each.partition] = each.offset + 1
        if isinstance(member, MemberProcess):
            self.commits += member.commits
            member.commits = []

    def commit(self, member: Member) -> bool:
        """Commit what the member was given last, as far as it is assigned that; whether the coordinator took it."""
        positions = self._positions[self._name(member)]
        generation = member.generation()
        assigned = member.assignment()
        mine = {partition: offset for partition, offset in positions.items() if partition in assigned}
        if not mine or not member.commit(mine):
            return False
        self.commits += [(generation, partition, offset) for partition, offset in mine.items()]
        return True

    def poll_until(self, condition: Callable[[], bool], *members: Member | MemberProcess, seconds: float = SECONDS) -> None:
        """Poll them until it is so."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{len(self.values())} records; {[sorted(member.assignment()) for member in members]}"
            self.poll(*members)

    def check(self, values: set[int]) -> None:
        """The rules about members; `values` is what was produced."""
        owners: dict[tuple[int, str, int, int], str] = {}
        for name, (generation, topic, partition, offset, _) in self.seen:
            owner = owners.setdefault((generation, topic, partition, offset), name)
            assert owner == name, f"in generation {generation} both {owner} and {name} were given {topic}-{partition} @ {offset}"
        committed: dict[Partition, dict[int, int]] = defaultdict(dict)
        for generation, partition, offset in self.commits:
            of_partition = committed[partition]
            of_partition[generation] = max(offset, of_partition.get(generation, 0))
        for name, (generation, topic, index, offset, _) in self.seen:
            for earlier, position in committed[topic, index].items():
                assert earlier >= generation or offset >= position, (
                    f"{name} was given {topic}-{index} @ {offset} in generation {generation}; {position} was committed in {earlier}"
                )
        assert self.values() == values

    def _name(self, member: Member | MemberProcess) -> str:
        if id(member) not in self._names:
            self._members.append(member)
            self._names[id(member)] = f"{type(member).__name__} {len(self._names)}"
        return self._names[id(member)]


def are_shared(partitions: set[Partition], *members: Member | MemberProcess) -> bool:
    """Whether each of these partitions has one member, and every member some."""
    assigned = [member.assignment() for member in members]
    return all(assigned) and sorted(each for part in assigned for each in part) == sorted(partitions)


def check_offsets_topic(data: Path, group: str) -> int:
    """The rules about what the broker wrote down; returns the group's last generation."""
    committed: dict[OffsetKey, int] = {}
    last_generation = 0
    for key, value in _records(data):
        found = read_key(key)
        if isinstance(found, OffsetKey) and found.group_id == group:
            offset = -1 if value is None else read_offset_value(value).offset
            assert value is None or offset >= committed.get(found, -1), f"{found} went back from {committed[found]} to {offset}"
            committed[found] = offset
        elif isinstance(found, GroupKey) and found.group_id == group and value is not None:
            _, stored = read_group_value(value)
            assert stored.generation >= last_generation
            last_generation = stored.generation
            assigned = [partition for member in stored.members for partition in _assigned(member.assignment)]
            assert len(assigned) == len(set(assigned)), f"generation {last_generation} has a partition twice: {sorted(assigned)}"
    return last_generation


def _assigned(assignment: bytes) -> list[Partition]:
    if len(assignment) < 2:
        return []
    message, _ = ConsumerProtocolAssignment.decode(assignment, 0, 2)
    return [(topic.topic, index) for topic in message.assigned_partitions for index in topic.partitions]


def _records(data: Path) -> Iterator[tuple[bytes, bytes | None]]:
    for path in sorted(data.glob("__consumer_offsets-*/*.log")):
        log = path.read_bytes()
        for position, header in iter_batches(log):
            for record in iter_records(log, position, header):
                if record.key is not None:
                    yield record.key, record.value
