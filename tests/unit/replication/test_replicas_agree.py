"""Two replicas that lead in turns, elected cleanly or not, fetch from each other with the real handlers: in the end they are equal."""

import asyncio
import contextlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.errors import LogBeingTruncated
from tests.support.batches import a_batch
from tests.support.followers import Replica, until
from tests.support.logs import read_all
from tests.support.virtual_time import in_virtual_time

Step = tuple[str, int]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("lead"), st.integers(0, 1)),
        st.tuples(st.just("produce"), st.integers(1, 4)),
        st.tuples(st.just("run"), st.integers(1, 12)),
        st.tuples(st.just("part"), st.integers(0, 1)),
        st.tuples(st.just("delete"), st.integers(0, 20)),
    ),
    max_size=40,
)


class Pair:
    """The replicas, and who leads. An election does not ask who has what: that is an unclean one."""

    def __init__(self, **topic_config: str) -> None:
        self.replicas = [Replica(**topic_config), Replica(**topic_config)]
        self.replicas[0].other, self.replicas[1].other = self.replicas[1], self.replicas[0]
        self.leader = self.replicas[0]
        self.epoch = 0
        self.elect(0)

    @property
    def follower(self) -> Replica:
        return self.replicas[1 - self.replicas.index(self.leader)]

    def elect(self, index: int, *, follower_hears: bool = True) -> None:
        self.epoch += 1
        self.leader = self.replicas[index]
        self.leader.lead(self.epoch)
        if follower_hears:
            self.follower.follow(self.epoch)

    async def take(self, step: Step) -> None:
        name, number = step
        if name == "lead":
            self.elect(number)
        elif name == "part":
            # the deposed leader does not hear of it and goes on
            self.elect(number, follower_hears=False)
        elif name == "produce":
            for replica in self.replicas:
                if replica.manager.partitions and replica.bench.replicas.partition.is_leader:
                    replica.bench.produce(*([a_batch(number, value_bytes=10 + self.epoch)]), acks=1)
        elif name == "delete":
            partition = self.leader.bench.replicas.partition
            with contextlib.suppress(LogBeingTruncated):  # it followed a moment ago
                partition.delete_records(min(number, partition.log.high_watermark))
        else:
            for _ in range(number):
                await asyncio.sleep(0)

    async def settle(self) -> None:
        self.elect(0)
        await until(lambda: self.leader.log.truncation is None)
        self.leader.bench.produce(a_batch(1), acks=1)
        await until(
            lambda: (
                self.replicas[1].log.truncation is None
                and self.replicas[0].log.log_end_offset == self.replicas[1].log.log_end_offset == self.replicas[1].log.high_watermark
            )
        )

    async def close(self) -> None:
        for replica in self.replicas:
            await replica.pool.close()


def check(history: list[Step], **topic_config: str) -> None:
    @in_virtual_time
    async def scenario() -> None:
        pair = Pair(**topic_config)
        for step in history:
            await pair.take(step)
        await pair.settle()
        first, second = (replica.log for replica in pair.replicas)
        start = max(first.log_start_offset, second.log_start_offset)
        assert read_all(first, start) == read_all(second, start)
        assert first.latest_epoch == second.latest_epoch
        assert [entry for entry in first.leader_epochs.entries if entry[1] > start] == [
            entry for entry in second.leader_epochs.entries if entry[1] > start
        ]
        assert not pair.replicas[0].pool.failed | pair.replicas[1].pool.failed
        await pair.close()

    scenario()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_replicas_are_equal_after_any_history_of_elections(history: list[Step]) -> None:
    check(history)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_replicas_of_many_small_segments_are_equal_too(history: list[Step]) -> None:
    check(history, segment_bytes="300")


def test_a_leader_that_lost_its_tail_without_an_election_between_gets_it_back_from_the_other() -> None:
    """KIP-101, scenario 1: the follower is elected before it heard of the high watermark."""
    check([("produce", 2), ("run", 12), ("run", 12), ("lead", 1), ("produce", 1), ("run", 12), ("lead", 0)])


def test_two_fast_unclean_elections_leave_no_diverging_records() -> None:
    """KIP-279: both wrote in epochs that the other has never seen."""
    check([("produce", 2), ("run", 12), ("part", 1), ("produce", 3), ("part", 0), ("produce", 1), ("part", 1), ("produce", 2)])
