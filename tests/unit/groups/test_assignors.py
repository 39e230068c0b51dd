"""The assignors `uniform` and `range`: every partition once, equal parts, few moves; as good as those of Apache Kafka 4.4."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.groups.consumer.assignors import ASSIGNORS, Assignment, Subscriber, range_, uniform
from tests.support.assignment_histories import Quality, assign, histories, quality, topic_id

RECORDED = Path(__file__).parents[2] / "recorded" / "assignment-quality.txt"
"""The quality of the assignments of Apache Kafka 4.4 for the same histories, by `AssignmentQuality.java`."""

T1, T2, T3 = map(topic_id, (1, 2, 3))

topics = st.sets(st.integers(0, 4).map(topic_id), max_size=5).map(frozenset)
counts = st.dictionaries(st.integers(0, 3).map(topic_id), st.integers(1, 9))
old = st.dictionaries(st.integers(0, 4).map(topic_id), st.sets(st.integers(0, 12), min_size=1).map(frozenset), max_size=3)
groups = st.dictionaries(st.text("abc", min_size=1, max_size=4), st.builds(Subscriber, topics, old, st.none() | st.text("xy", min_size=1)))


def parts(assigned: dict[str, Assignment], topic: bytes) -> list[list[int]]:
    """The partitions of a topic by member."""
    return [sorted(each.get(topic, ())) for _, each in sorted(assigned.items())]


def everybody(number: int, *subscribed: bytes, after: dict[str, Assignment] | None = None) -> dict[str, Subscriber]:
    """Members with equal subscriptions."""
    return {f"m{index:04}": Subscriber(frozenset(subscribed), (after or {}).get(f"m{index:04}", {})) for index in range(number)}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=groups, partitions=counts)
def test_every_partition_with_subscribers_has_one_owner_that_subscribes_to_it(
    name: str, members: dict[str, Subscriber], partitions: dict[bytes, int]
) -> None:
    assigned = ASSIGNORS[name](members, partitions)
    assert assigned.keys() == members.keys()
    owned = sorted((topic, index) for each in assigned.values() for topic, indexes in each.items() for index in indexes)
    wanted = {topic for member in members.values() for topic in member.topics}
    assert owned == sorted((topic, index) for topic, count in partitions.items() if topic in wanted for index in range(count))
    for member_id, each in assigned.items():
        assert each.keys() <= members[member_id].topics
        assert all(each.values()), "no topic without partitions"


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=groups, partitions=counts)
def test_the_order_of_the_members_does_not_matter(name: str, members: dict[str, Subscriber], partitions: dict[bytes, int]) -> None:
    turned = dict(reversed(members.items()))
    assert ASSIGNORS[name](members, partitions) == ASSIGNORS[name](turned, partitions)


@given(members=groups, partitions=counts)
def test_a_uniform_assignment_that_is_computed_again_moves_nothing(members: dict[str, Subscriber], partitions: dict[bytes, int]) -> None:
    assigned = uniform(members, partitions)
    again = uniform({member_id: each._replace(assigned=assigned[member_id]) for member_id, each in members.items()}, partitions)
    assert again == assigned


@given(number=st.integers(1, 12), partitions=counts)
def test_members_with_equal_subscriptions_differ_by_one_partition_at_most(number: int, partitions: dict[bytes, int]) -> None:
    assigned = uniform(everybody(number, *partitions), partitions)
    loads = [sum(map(len, each.values())) for each in assigned.values()]
    assert max(loads) - min(loads) <= 1


@given(first=st.integers(1, 12), second=st.integers(1, 12), partitions=counts)
def test_members_with_equal_subscriptions_keep_all_that_balance_allows(first: int, second: int, partitions: dict[bytes, int]) -> None:
    before = uniform(everybody(first, *partitions), partitions)
    after = uniform(everybody(second, *partitions, after=before), partitions)
    total = sum(partitions.values())
    least = sum(max(0, sum(map(len, before[member_id].values())) - -(-total // second)) for member_id in after if member_id in before)
    extra = total % second
    assert quality(before, after).moves <= least + extra + sum(total // second for member_id in after if member_id not in before)
    if second <= first:
        assert quality(before, after).moves == 0, "what a member that left had goes to the others"


def test_a_partition_that_two_members_had_stays_with_the_first() -> None:
    both = {"a": Subscriber(frozenset({T1}), {T1: frozenset({0, 1})}), "b": Subscriber(frozenset({T1}), {T1: frozenset({1})})}
    assert parts(uniform(both, {T1: 2}), T1) == [[0], [1]]


def test_members_without_a_choice_get_their_partitions_first() -> None:
    members = {"all": Subscriber(frozenset({T1, T2}), {}), "one": Subscriber(frozenset({T1}), {})}
    assigned = uniform(members, {T1: 4, T2: 4})
    assert [sum(map(len, each.values())) for each in assigned.values()] == [4, 4]
    assert parts(assigned, T2) == [[0, 1, 2, 3], []]


def test_topics_of_equal_size_are_assigned_alike_by_range() -> None:
    assigned = range_(everybody(2, T1, T2), {T1: 3, T2: 3, T3: 9})
    assert parts(assigned, T1) == parts(assigned, T2) == [[0, 1], [2]]
    assert parts(assigned, T3) == [[], []]


def test_a_static_member_keeps_its_range_under_another_member_id() -> None:
    first = range_({"a": Subscriber(frozenset({T1}), {}, "i1"), "b": Subscriber(frozenset({T1}), {}, "i0")}, {T1: 3})
    second = range_({"z": Subscriber(frozenset({T1}), {}, "i0"), "c": Subscriber(frozenset({T1}), {}, "i1")}, {T1: 3})
    assert (first["a"], first["b"]) == (second["c"], second["z"])
    third = range_({"0": Subscriber(frozenset({T1}), {}), "b": Subscriber(frozenset({T1}), {}, "i0")}, {T1: 3})
    assert third["b"] == {T1: frozenset({0, 1})}, "static members come first"


def test_a_thousand_members_share_ten_thousand_partitions() -> None:
    partitions = {topic_id(number): 100 for number in range(100)}
    everyone = everybody(1_000, *partitions)
    before = uniform(everyone, partitions)
    del everyone["m0500"]
    after = uniform({member_id: each._replace(assigned=before[member_id]) for member_id, each in everyone.items()}, partitions)
    assert {sum(map(len, each.values())) for each in after.values()} == {10, 11}
    assert quality(before, after).moves == 0


def test_assignments_are_as_equal_and_as_sticky_as_those_of_apache_kafka() -> None:
    recorded = [Quality(*map(int, line.split())) for line in RECORDED.read_text().splitlines()]
    ours: list[Quality] = []
    kinds: list[tuple[str, bool]] = []
    for steps in histories():
        before: dict[str, Assignment] = {}
        for step in steps:
            after = assign(step, before)
            ours.append(quality(before, after))
            kinds.append((step.assignor, len(set(step.members.values())) == 1))
            before = after
    assert len(ours) == len(recorded)
    for kind in {*kinds}:
        pairs = [(mine, theirs) for mine, theirs, each in zip(ours, recorded, kinds, strict=True) if each == kind]
        for field in ("squares", "moves"):
            mine, theirs = (sum(getattr(pair[side], field) for pair in pairs) for side in (0, 1))
            assert mine <= theirs * 1.01, f"{kind}: {field} {mine}, Apache Kafka {theirs}"
        if kind[1] or kind[0] == "range":
            assert [mine.squares for mine, _ in pairs] == [theirs.squares for _, theirs in pairs]
