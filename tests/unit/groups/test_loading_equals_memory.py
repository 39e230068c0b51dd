"""A group that is loaded from the log has the offsets that it had in memory, after any history of commits, transactions, deletions and
expiry."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordination.groups.classic_group import GroupSettings
from ottla.coordination.groups.committed import CommittedOffset, CommittedOffsets
from ottla.coordination.groups.group import Group
from ottla.coordination.groups.loading import GroupLoader
from ottla.protocol.topic_partition import TopicPartition
from tests.support.group_bench import GroupBench, run
from tests.support.groups import quiet
from tests.support.logs import read_all

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
GROUPS = ["g", "h"]
PRODUCERS = [1, 2, 3]

Offsets = dict[TopicPartition, CommittedOffset]

group = st.sampled_from(GROUPS)
producer = st.sampled_from(PRODUCERS)
partition = st.sampled_from(PARTITIONS)
step = st.one_of(
    st.tuples(st.just("commit"), group, partition),
    st.tuples(st.just("commit in transaction"), group, partition, producer),
    st.tuples(st.just("commit in transaction"), group, partition, producer),
    st.tuples(st.just("end"), producer, st.booleans()),
    st.tuples(st.just("replicate")),
    st.tuples(st.just("expire"), st.integers(1, 50)),
    st.tuples(st.just("delete"), group, partition),
    st.tuples(st.just("hand over")),
)


class History:
    """Plays steps on a coordinator whose follower has the records only when it is told to fetch."""

    def __init__(self, bench: GroupBench) -> None:
        self.bench = bench
        self.offset = 0
        self.epoch = 0
        self.markers: list[tuple[int, bool]] = []

    async def take(self, what: str, *arguments: Any) -> None:
        self.offset += 1
        if what == "commit":
            name, where = arguments
            self.bench.commit(self.offset, group=name, partition=where)
        elif what == "commit in transaction":
            name, where, producer_id = arguments
            if any(each == producer_id for each, _ in self.markers):
                self.replicate()  # the coordinator begins no transaction before the last one has its markers
            self.bench.commit_in_transaction(self.offset, group=name, partition=where, producer_id=producer_id)
        elif what == "end":
            producer_id, is_commit = arguments
            self.bench.write_marker(producer_id, is_commit=is_commit)
            self.markers.append((producer_id, is_commit))
        elif what == "replicate":
            self.replicate()
        elif what == "delete":
            name, where = arguments
            self.replicate()
            self.bench.groups.offsets.delete_offsets(name, [where])
        elif what == "expire":
            self.replicate()
            self.bench.clock.move(arguments[0] * 1_000)
            await self.bench.groups.offsets.expire()
        else:
            await self.hand_over()

    def replicate(self) -> None:
        self.bench.follower_fetches()
        for producer_id, is_commit in self.markers:
            self.bench.groups.on_transaction_completed(producer_id, 0, is_commit)
        self.markers.clear()

    async def hand_over(self) -> None:
        """Broker 1 leads, and then this one again; markers that no follower had are asked for again."""
        await self.bench.lead(epoch=self.epoch + 1, isr=(0, 1), leader=1)
        self.epoch += 2
        await self.bench.lead(epoch=self.epoch, isr=(0, 1))
        await self.bench.until_loaded()


def content_of(offsets: CommittedOffsets) -> Offsets:
    return {each: offsets[each] for each in offsets}


def contents(groups: Mapping[str, Group]) -> dict[str, tuple[Offsets, dict[int, Offsets]]]:
    """The offsets of groups that have any; those of open transactions by producer id."""
    found = {}
    for group_id, each in groups.items():
        assert not each.offsets.pending
        open_ones = {producer_id: content_of(offsets) for producer_id, offsets in each.offsets.transactional.items() if offsets}
        if open_ones or each.offsets.committed:
            found[group_id] = content_of(each.offsets.committed), open_ones
    return found


def loaded(bench: GroupBench) -> dict[str, Group]:
    loader = GroupLoader("__consumer_offsets-0", GroupSettings())
    groups: dict[str, Group] = {}
    for _ in loader.feed(read_all(bench.partition().log)):
        pass
    for _ in loader.states(0, groups):
        pass
    assert not loader.skipped
    return groups


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(step, max_size=40))
def test_any_history_leaves_the_same_offsets_in_memory_and_in_the_log(steps: list[tuple[Any, ...]]) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        history = History(bench)
        for each in steps:
            await history.take(*each)
        history.replicate()
        owned = bench.groups.groups.partitions[0]
        assert contents(owned.states) == contents(loaded(bench))
        for producer_id in PRODUCERS:
            await history.take("end", producer_id, producer_id != 2)
        history.replicate()
        assert contents(owned.states) == contents(loaded(bench))
        assert not any(each.offsets.transactional for each in owned.states.values()), "every transaction has ended"

    with quiet():
        run(scenario, offsets_retention_minutes=1)
