"""Assigns the partitions of topics to the members of a consumer group: Kafka's server-side assignors `uniform` and `range`.

Pure functions on plain data, so a thread can run them on a frozen copy of the group. Topics with the same subscribers form an `_Audience`,
so the time grows with the number of members and partitions, not with the product of members and topics. The result depends on the input
alone, not on the order in which members joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple, TypeAlias

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; no topic without partitions."""

Partition: TypeAlias = tuple[bytes, int]
"""(topic id, partition)."""

ROUNDS: Final = 100
"""Most passes over all audiences in search of a better balance. Each pass lowers the difference between members, and few are needed."""


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    topics: frozenset[bytes]
    """The ids of the topics that it subscribes to."""
    assigned: Assignment
    """Its part of the target before this one."""
    instance_id: str | None = None


Assignor: TypeAlias = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], dict[str, Assignment]]
"""Computes the part of each member from the members and the number of partitions of each topic. Other topics do not exist."""


class _Audience:
    """Topics with the same subscribers. `owned` has their partitions by subscriber; those that are new to it are at the end."""

    __slots__ = ("members", "owned", "topics")

    def __init__(self, members: Sequence[str]) -> None:
        self.members = members
        self.topics: list[bytes] = []
        self.owned: dict[str, list[Partition]] = {}


def uniform(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Gives all members as equal numbers of partitions as their subscriptions allow. A partition moves only for a better balance."""
    order = sorted(members)
    audiences = _audiences(members, partition_counts, order)
    loads = _keep(members, order, partition_counts, audiences)
    # Topics with few subscribers first, because others have more members to choose from.
    audiences.sort(key=lambda audience: (len(audience.members), audience.topics[0]))
    for audience in audiences:
        _assign_rest(audience, partition_counts, loads)
    for _ in range(ROUNDS):
        if not sum([_balance(audience, loads) for audience in audiences]):
            break
    return _result(members, audiences)


def range_(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Gives each subscriber of a topic a range of its partitions, in the order of the members. Topics with equal subscribers and numbers of
    partitions are assigned alike. Static members come first, by their group.instance.id, so they keep their ranges under a new member id.
    """
    order = sorted(members, key=lambda member_id: _place(member_id, members[member_id]))
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    for audience in _audiences(members, partition_counts, order):
        for topic in audience.topics:
            least, rest = divmod(partition_counts[topic], len(audience.members))
            begin = 0
            for number, member_id in enumerate(audience.members):
                end = begin + least + (number < rest)
                if begin == end:
                    break
                assigned[member_id][topic] = frozenset(range(begin, end))
                begin = end
    return dict(assigned)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_}
"""The assignors by name. The first name is the default of group.consumer.assignors."""


SIMPLE: Final = "simple"
"""The assignor of share groups, whose members share partitions (KIP-932)."""


def simple(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Every partition gets as many members as there are for each partition, at least one. So no member of a large group is idle. Members
    keep what they have as far as the others get as much."""
    audiences: dict[frozenset[bytes], list[str]] = {}
    for member_id in sorted(members):
        audiences.setdefault(members[member_id].topics, []).append(member_id)
    assigned: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    sizes = dict.fromkeys(members, 0)
    if len(audiences) == 1:
        ((topics, everybody),) = audiences.items()
        parts = [(everybody, sorted(topics & partition_counts.keys()))]
    else:
        subscribers: dict[bytes, list[str]] = {}
        for topics, some in audiences.items():
            for topic in topics & partition_counts.keys():
                subscribers.setdefault(topic, []).extend(some)
        parts = [(sorted(some), [topic]) for topic, some in sorted(subscribers.items())]
    for some, ids in parts:
        _share_out(some, [(topic, index) for topic in ids for index in range(partition_counts[topic])], members, assigned, sizes)
    return {member_id: {topic: frozenset(indexes) for topic, indexes in each.items()} for member_id, each in assigned.items()}


def _share_out(
    some: list[str],
    partitions: list[Partition],
    members: Mapping[str, Subscriber],
    assigned: dict[str, dict[bytes, set[int]]],
    sizes: dict[str, int],
) -> None:
    """Assign partitions to members with the same subscription."""
    if not partitions:
        return
    sharing = max(1, -(-len(some) // len(partitions)))
    quota = -(-len(partitions) * sharing // len(some))
    left = dict.fromkeys(partitions, sharing)
    begun = dict(sizes)
    for member_id in some:
        for topic, indexes in members[member_id].assigned.items():
            for index in sorted(indexes):
                if left.get((topic, index), 0) and sizes[member_id] - begun[member_id] < quota:
                    left[topic, index] -= 1
                    sizes[member_id] += 1
                    assigned[member_id].setdefault(topic, set()).add(index)
    heap = [(sizes[member_id], member_id) for member_id in some]
    heapify(heap)
    for (topic, index), count in left.items():
        missing = count
        passed_over = []
        while missing and heap:
            size, member_id = heappop(heap)
            if index in assigned[member_id].get(topic, ()):
                passed_over.append((size, member_id))
                continue
            assigned[member_id].setdefault(topic, set()).add(index)
            sizes[member_id] = size + 1
            passed_over.append((size + 1, member_id))
            missing -= 1
        for entry in passed_over:
            heappush(heap, entry)


ALL_ASSIGNORS: Final[Mapping[str, Assignor]] = {**ASSIGNORS, SIMPLE: simple}
"""Also that of share groups."""


def _place(member_id: str, member: Subscriber) -> tuple[bool, str, str]:
    return member.instance_id is None, member.instance_id or "", member_id


def _audiences(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int], order: Sequence[str]) -> list[_Audience]:
    """The existing topics by their subscribers, who are in the given order."""
    alike: dict[frozenset[bytes], list[str]] = {}
    for member_id in order:
        alike.setdefault(members[member_id].topics, []).append(member_id)
    subscribed: dict[bytes, list[int]] = {}
    for number, topics in enumerate(alike):
        for topic in topics:
            if topic in partition_counts:
                subscribed.setdefault(topic, []).append(number)
    crowds = list(alike.values())
    places = {member_id: place for place, member_id in enumerate(order)}
    audiences: dict[tuple[int, ...], _Audience] = {}
    for topic in sorted(subscribed):
        numbers = tuple(subscribed[topic])
        audience = audiences.get(numbers)
        if audience is None:
            together = [member_id for number in numbers for member_id in crowds[number]]
            audience = audiences[numbers] = _Audience(sorted(together, key=places.__getitem__))
        audience.topics.append(topic)
    return list(audiences.values())


def _keep(
    members: Mapping[str, Subscriber], order: Sequence[str], partition_counts: Mapping[bytes, int], audiences: Sequence[_Audience]
) -> dict[str, int]:
    """Leave the partitions with their members, as far as they exist; of two members the first has it. Returns the numbers of partitions."""
    audience_of = {topic: audience for audience in audiences for topic in audience.topics}
    taken: dict[bytes, set[int]] = {topic: set() for topic in audience_of}
    loads: dict[str, int] = {}
    for member_id in order:
        topics, assigned, _ = members[member_id]
        load = 0
        for topic in sorted([topic for topic in assigned if topic in topics and topic in taken]):
            count = partition_counts[topic]
            kept = sorted([index for index in assigned[topic] - taken[topic] if 0 <= index < count])
            taken[topic].update(kept)
            if kept:
                audience_of[topic].owned.setdefault(member_id, []).extend([(topic, index) for index in kept])
                load += len(kept)
        loads[member_id] = load
    return loads


def _assign_rest(audience: _Audience, partition_counts: Mapping[bytes, int], loads: dict[str, int]) -> None:
    """Give each partition without a member to the subscriber that has the fewest."""
    taken = {partition for owned in audience.owned.values() for partition in owned}
    free = [(topic, index) for topic in audience.topics for index in range(partition_counts[topic]) if (topic, index) not in taken]
    if not free:
        return
    queue = [(loads[member_id], place, member_id) for place, member_id in enumerate(audience.members)]
    heapify(queue)
    for partition in free:
        load, place, member_id = queue[0]
        audience.owned.setdefault(member_id, []).append(partition)
        loads[member_id] = load + 1
        heapreplace(queue, (load + 1, place, member_id))


def _balance(audience: _Audience, loads: dict[str, int]) -> int:
    """Move partitions from members with many to those with few, until they differ by one at most. Returns the number of moves."""
    owned = audience.owned
    if not owned or max([loads[member_id] for member_id in owned]) - min(map(loads.__getitem__, audience.members)) <= 1:
        return 0
    fewest = [(loads[member_id], place, member_id) for place, member_id in enumerate(audience.members)]
    most = [(-load, place, member_id) for load, place, member_id in fewest if owned.get(member_id)]
    heapify(fewest)
    heapify(most)
    moves = 0
    while most:
        load, giving_place, giver = most[0]
        if -load != loads[giver] or not owned[giver]:
            heappop(most)
            continue
        least, place, taker = fewest[0]
        if least != loads[taker]:
            heappop(fewest)
            continue
        if -load - least <= 1:
            break
        owned.setdefault(taker, []).append(owned[giver].pop())
        moves += 1
        loads[giver] -= 1
        loads[taker] += 1
        for member_id, at in ((giver, giving_place), (taker, place)):
            heappush(most, (-loads[member_id], at, member_id))
            heappush(fewest, (loads[member_id], at, member_id))
    for member_id in [member_id for member_id, partitions in owned.items() if not partitions]:
        del owned[member_id]
    return moves


def _result(members: Mapping[str, Subscriber], audiences: Sequence[_Audience]) -> dict[str, Assignment]:
    assigned: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    for member_id, partition in _owned(audiences):
        assigned[member_id].setdefault(partition[0], set()).add(partition[1])
    return {member_id: {topic: frozenset(partitions) for topic, partitions in of.items()} for member_id, of in assigned.items()}


def _owned(audiences: Sequence[_Audience]) -> Iterator[tuple[str, Partition]]:
    for audience in audiences:
        for member_id, owned in audience.owned.items():
            for partition in owned:
                yield member_id, partition
