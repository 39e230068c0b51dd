"""Replica placement equals Kafka's AdminUtils: its documented examples, its answers, and what holds for every cluster."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.admin.placement import assign_replicas, rack_alternated
from ottla.controller.errors import InvalidPartitions, InvalidReplicationFactor, RackInformationIncomplete

PLACEMENTS = Path(__file__).with_name("placements.txt")


def first(_: int) -> int:
    return 0


def test_without_racks_the_first_replicas_go_round_and_the_others_shift() -> None:
    # The table in the documentation of AdminUtils: 10 partitions, factor 3, brokers 0 to 4.
    assert assign_replicas(dict.fromkeys(range(5)), 10, 3, first) == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_racks_alternate() -> None:
    assert rack_alternated({0: "r1", 1: "r1", 2: "r1", 3: "r2", 4: "r2", 5: "r2", 6: "r3", 7: "r3", 8: "r3"}) == [0, 3, 6, 1, 4, 7, 2, 5, 8]
    assert rack_alternated({0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}) == [0, 3, 1, 5, 4, 2]


def test_with_racks_every_rack_is_taken_once_before_any_twice() -> None:
    racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    assert assign_replicas(racks, 7, 3, first) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_the_recorded_cluster_of_three_racks_placed_its_topic_this_way() -> None:
    # Topic "auto" of the recording: 6 partitions, factor 3, the start it drew by chance was broker 2 with shift 0.
    drawn = iter([2, 0])
    assert assign_replicas({0: "r0", 1: "r1", 2: "r2"}, 6, 3, lambda _: next(drawn)) == {
        0: (2, 0, 1),
        1: (0, 1, 2),
        2: (1, 2, 0),
        3: (2, 1, 0),
        4: (0, 2, 1),
        5: (1, 0, 2),
    }


@pytest.mark.parametrize("line", [line for line in PLACEMENTS.read_text().splitlines() if not line.startswith("#")])
def test_brokers_and_racks_of_all_kinds_are_given_what_apache_kafka_gives_them(line: str) -> None:
    asked, _, expected = line.partition(" = ")
    brokers, racks, partitions, factor, start, first_partition = asked.split(" ")
    ids = [int(each) for each in brokers.split(",")]
    rack_of = dict(zip(ids, racks.split(","), strict=True)) if racks != "-" else dict.fromkeys(ids)
    found = assign_replicas(rack_of, int(partitions), int(factor), first, int(start), int(first_partition))
    assert " ".join(f"{index}:{','.join(map(str, replicas))}" for index, replicas in found.items()) == expected


def test_growth_goes_on_where_the_topic_stopped() -> None:
    assert assign_replicas(dict.fromkeys(range(3)), 2, 1, first, fixed_start_index=1, start_partition=4) == {4: (2,), 5: (0,)}


def test_what_is_impossible_is_refused_in_kafkas_words() -> None:
    with pytest.raises(InvalidPartitions, match=r"^Number of partitions must be larger than 0\.$"):
        assign_replicas({0: None}, 0, 1, first)
    with pytest.raises(InvalidReplicationFactor, match=r"^Replication factor must be larger than 0\.$"):
        assign_replicas({0: None}, 1, 0, first)
    with pytest.raises(InvalidReplicationFactor, match=r"^Replication factor: 2 larger than available brokers: 1\.$"):
        assign_replicas({0: None}, 1, 2, first)
    with pytest.raises(RackInformationIncomplete, match="Not all brokers have rack information"):
        assign_replicas({0: None, 1: "r"}, 1, 1, first)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_replicas_are_different_brokers_and_spread_over_racks_and_leaders(data: st.DataObject) -> None:
    rack_of_broker = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
    with_racks = data.draw(st.booleans())
    racks = {broker: rack if with_racks else None for broker, rack in enumerate(rack_of_broker)}
    factor = data.draw(st.integers(1, len(racks)))
    partitions = data.draw(st.integers(1, 40))
    placed = assign_replicas(racks, partitions, factor, lambda below: data.draw(st.integers(0, below - 1)))
    assert list(placed) == list(range(partitions))
    for replicas in placed.values():
        assert len(set(replicas)) == factor == len(replicas)
        if with_racks:
            assert len({racks[each] for each in replicas}) == min(factor, len(set(rack_of_broker)))
    leaders = [replicas[0] for replicas in placed.values()]
    assert max(map(leaders.count, racks)) - min(map(leaders.count, racks)) <= 1
