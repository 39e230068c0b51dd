"""Batches of states are merged like single records."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.shares.record_states import StateBatch
from ottla.coordination.shares.state.merging import merge, prune

batches = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    st.integers(0, 30), st.integers(0, 10), st.sampled_from([0, 2, 4]), st.integers(0, 3),
)  # fmt: skip


def by_offset(merged: list[StateBatch]) -> dict[int, tuple[int, int]]:
    return {offset: (each.delivery_count, each.state) for each in merged for offset in range(each.first, each.last + 1)}


@given(st.lists(batches, max_size=12), st.integers(0, 45))
def test_merging_is_that_of_single_records(new: list[StateBatch], start: int) -> None:
    merged: list[StateBatch] = []
    expected: dict[int, tuple[int, int]] = {}
    for each in new:
        merge(merged, [each])
        for offset in range(each.first, each.last + 1):
            expected[offset] = max(expected.get(offset, (-1, -1)), (each.delivery_count, each.state))
        assert by_offset(merged) == expected
        for one, next_one in pairwise(merged):
            assert one.last < next_one.first
            assert one.last + 1 < next_one.first or one[2:] != next_one[2:], "neighbours with equal states are one batch"
    prune(merged, start)
    assert by_offset(merged) == {offset: state for offset, state in expected.items() if offset >= start}


def test_the_order_of_batches_does_not_matter() -> None:
    new = [StateBatch(0, 9, 0, 1), StateBatch(5, 14, 2, 1), StateBatch(3, 20, 0, 2)]
    forward: list[StateBatch] = []
    backward: list[StateBatch] = []
    merge(forward, new)
    merge(backward, reversed(new))
    assert forward == backward == [StateBatch(0, 2, 0, 1), StateBatch(3, 20, 0, 2)]
