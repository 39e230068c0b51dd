"""Two replicas that lead in turns while transactions are written: in the end both know the same transactions, and the right ones."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.logs import read_all
from tests.support.replica_pair import Pair, Step
from tests.support.transactions import Transactions
from tests.support.virtual_time import in_virtual_time

PRODUCERS = st.integers(5, 7)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PRODUCERS),
        st.tuples(st.just("write"), PRODUCERS),
        st.tuples(st.sampled_from(["commit", "abort"]), PRODUCERS),
        st.tuples(st.just("produce"), st.integers(1, 2)),
        st.tuples(st.just("run"), st.integers(1, 12)),
        st.tuples(st.sampled_from(["lead", "part"]), st.integers(0, 1)),
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
        content = read_all(first)
        assert content == read_all(second)
        for log in (first, second):
            assert log.high_watermark == log.log_end_offset
            Transactions(content).check(log)
        assert _producers(pair, 0) == _producers(pair, 1)
        await pair.close()

    scenario()


def _producers(pair: Pair, index: int) -> set[tuple[int, int, int, int, int]]:
    return {
        (each.producer_id, each.producer_epoch, each.last_sequence, each.coordinator_epoch, each.current_txn_first_offset)
        for each in pair.replicas[index].log.active_producers()
    }


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_replicas_know_the_same_transactions_after_any_history_of_elections(history: list[Step]) -> None:
    check(history)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_replicas_of_many_small_segments_know_the_same_transactions(history: list[Step]) -> None:
    check(history, segment_bytes="300")


def test_a_marker_that_only_the_old_leader_had_is_written_again_by_the_new_one() -> None:
    check([("write", 5), ("run", 12), ("part", 1), ("commit", 5), ("run", 3), ("lead", 1), ("run", 12), ("abort", 5), ("run", 12)])


def test_a_follower_that_is_elected_in_an_open_transaction_ends_it() -> None:
    check([("write", 5), ("write", 6), ("run", 12), ("lead", 1), ("write", 5), ("commit", 5), ("run", 12), ("lead", 0), ("abort", 6)])
