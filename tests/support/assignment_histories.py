"""Makes random histories of groups for the assignors, and judges assignments: how equal they are, and how many partitions moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

from ottla.coordination.groups.consumer.assignors import ASSIGNORS, Assignment, Subscriber

SEED = 4
GROUPS = 1_000


class Step(NamedTuple):
    """One assignment of a group: the number of partitions of each topic, and the topics of each member."""

    assignor: str
    counts: dict[int, int]
    members: dict[str, tuple[int, ...]]

    def line(self) -> str:
        """The step as `AssignmentQuality.java` reads it."""
        topics = ",".join(f"{topic}={count}" for topic, count in self.counts.items())
        members = ",".join(f"{member_id}={'+'.join(map(str, topics))}" for member_id, topics in self.members.items())
        return f"{self.assignor} {topics} {members}"


class Quality(NamedTuple):
    """The sum of the squares of the members' numbers of partitions, and the partitions that a member got from another one."""

    squares: int
    moves: int


def histories(groups: int = GROUPS, seed: int = SEED) -> Iterator[list[Step]]:
    """Groups that change several times: members join and leave, topics grow, appear and vanish. Half of them have equal subscriptions."""
    random = Random(seed)
    for number in range(groups):
        is_mixed = number % 2 == 0
        assignor = "range" if number % 5 == 4 else "uniform"
        counts = {topic: random.randint(1, 12) for topic in range(random.randint(1, 6))}
        members: dict[str, tuple[int, ...]] = {}
        steps = []
        joined = 0
        for _ in range(random.randint(3, 6)):
            for _ in range(random.randint(0, 3)):
                if members and random.random() < 0.5:
                    del members[random.choice(sorted(members))]
            for _ in range(random.randint(0 if members else 1, 3)):
                joined += 1
                members[f"member-{joined:03}"] = ()
            if random.random() < 0.3:
                counts[random.choice(sorted(counts))] += random.randint(1, 5)
            if random.random() < 0.2:
                counts[max(counts) + 1] = random.randint(1, 12)
            topics = sorted(counts)
            for member_id, known in members.items():
                if not is_mixed:
                    members[member_id] = tuple(topics)
                elif not known:
                    members[member_id] = tuple(sorted(random.sample(topics, random.randint(1, len(topics)))))
            steps.append(Step(assignor, dict(counts), dict(members)))
        yield steps


def topic_id(topic: int) -> bytes:
    """The id of a topic of a history."""
    return topic.to_bytes(16, "big")


def assign(step: Step, before: Mapping[str, Assignment]) -> dict[str, Assignment]:
    """The assignment of a step, after an earlier one."""
    members = {
        member_id: Subscriber(frozenset(map(topic_id, topics)), before.get(member_id, {})) for member_id, topics in step.members.items()
    }
    return ASSIGNORS[step.assignor](members, {topic_id(topic): count for topic, count in step.counts.items()})


def quality(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> Quality:
    """The quality of an assignment after an earlier one. Partitions of members that left do not count as moved."""
    owners = {
        (topic, index): member_id
        for member_id, assigned in before.items()
        if member_id in after
        for topic, partitions in assigned.items()
        for index in partitions
    }
    squares = moves = 0
    for member_id, assigned in after.items():
        squares += sum(map(len, assigned.values())) ** 2
        for topic, partitions in assigned.items():
            moves += sum(owners.get((topic, index), member_id) != member_id for index in partitions)
    return Quality(squares, moves)
