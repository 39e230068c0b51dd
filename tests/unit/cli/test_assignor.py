"""The range assignor shares every topic out evenly, and reads what other members say."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.assignor import (
    Subscriber,
    assign_ranges,
    decode_assignment,
    decode_topics,
    encode_assignment,
    encode_subscription,
)
from ottla.protocol.topic_partition import TopicPartition


def names(partitions: list[TopicPartition]) -> str:
    return " ".join(map(str, partitions))


def test_the_first_members_get_one_more() -> None:
    found = assign_ranges([Subscriber("b", ["t"]), Subscriber("a", ["t"])], {"t": 5})
    assert names(found["a"]) == "t-0 t-1 t-2"
    assert names(found["b"]) == "t-3 t-4"


def test_static_members_come_first_in_the_order_of_their_names() -> None:
    found = assign_ranges([Subscriber("a", ["t"]), Subscriber("z", ["t"], "two"), Subscriber("y", ["t"], "one")], {"t": 3})
    assert {member: names(partitions) for member, partitions in found.items()} == {"a": "t-2", "z": "t-1", "y": "t-0"}


def test_a_topic_that_is_not_there_gives_nobody_anything() -> None:
    assert assign_ranges([Subscriber("a", ["gone"])], {}) == {"a": []}


@given(
    members=st.dictionaries(st.text("abcd", min_size=1, max_size=3), st.sets(st.sampled_from(["x", "y", "z"])), min_size=1, max_size=5),
    counts=st.fixed_dictionaries({topic: st.integers(0, 9) for topic in "xyz"}),
)
@settings(max_examples=80, deadline=None)
def test_every_partition_goes_to_exactly_one_subscriber(members: dict[str, set[str]], counts: dict[str, int]) -> None:
    found = assign_ranges([Subscriber(name, sorted(topics)) for name, topics in members.items()], counts)
    given_out = [partition for partitions in found.values() for partition in partitions]
    wanted = {TopicPartition(topic, number) for topics in members.values() for topic in topics for number in range(counts[topic])}
    assert sorted(given_out) == sorted(wanted)
    for name, partitions in found.items():
        assert {partition.topic for partition in partitions} <= members[name]
    for topic in "xyz":
        shares = [sum(partition.topic == topic for partition in found[name]) for name, topics in members.items() if topic in topics]
        assert not shares or max(shares) - min(shares) <= 1


def test_what_members_write_can_be_read() -> None:
    partitions = [TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)]
    assert decode_topics(encode_subscription(["t", "u"])) == ["t", "u"]
    assert decode_assignment(encode_assignment(partitions)) == partitions


def test_newer_versions_are_read_and_nonsense_is_nothing() -> None:
    newer = b"\0\7" + encode_subscription(["t"])[2:] + b"\0" * 4 + b"\xff\xff" + b"more"
    assert decode_topics(newer) == ["t"]
    assert decode_topics(b"\0") == []
    assert decode_assignment(b"\0\1\xff\xff") == []
