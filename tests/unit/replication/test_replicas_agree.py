"""Two replicas that lead in turns, elected cleanly or not, fetch from each other with the real handlers: in the end they are equal."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.logs import read_all
from tests.support.replica_pair import Pair, Step
from tests.support.virtual_time import in_virtual_time

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


@pytest.mark.slow
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
