"""Batches of acknowledgements are joined where that changes nothing, and checked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.coordination.shares.acknowledgements import Acknowledgements
from ottla.coordination.shares.record_states import Acknowledgement
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_fetch import AcknowledgementBatch
from tests.support.share_partitions import SharePlayer, extents

Batch = tuple[int, int, list[int]]


def acknowledged(*batches: Batch) -> Acknowledgements:
    found = Acknowledgements()
    for first, last, types in batches:
        found.add([AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)])
    return found


def joined(*batches: Batch) -> list[Batch]:
    return [(each.first, each.last, list(each.types)) for each in acknowledged(*batches).batches]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([(3, 3, [1]), (4, 4, [1]), (5, 7, [1])], [(3, 7, [1])]),
        ([(3, 3, [1]), (4, 4, [2])], [(3, 3, [1]), (4, 4, [2])]),
        ([(3, 3, [1]), (5, 5, [1])], [(3, 3, [1]), (5, 5, [1])]),
        ([(3, 4, [1, 1]), (5, 5, [1])], [(3, 4, [1, 1]), (5, 5, [1])]),
    ],
)
def test_neighbours_of_one_type_are_one(batches: list[Batch], expected: list[Batch]) -> None:
    assert joined(*batches) == expected


def test_a_record_that_is_acknowledged_twice_is_left_to_the_share_partition() -> None:
    assert joined((3, 3, [1]), (3, 3, [1])) == [(3, 3, [1]), (3, 3, [1])]


def test_a_million_batches_of_neighbours_are_one() -> None:
    batches = [AcknowledgementBatch(first_offset=at, last_offset=at, acknowledge_types=[0]) for at in range(1_000_000)]
    found = Acknowledgements()
    found.add(batches)
    assert (found.batches, found.counts) == ([Acknowledgement(0, 999_999, [0])], {0: 1_000_000})


def test_records_are_counted_by_type() -> None:
    assert acknowledged((0, 9, [1]), (10, 14, [2, 1, 3, 3, 1]), (15, 15, [3])).counts == {1: 12, 2: 1, 3: 3}


def test_batches_below_the_start_cost_a_share_partition_nothing() -> None:
    batches = [Acknowledgement(at, at, [1 + at % 2]) for at in range(1000)]
    assert list(Acknowledgement(0, 9, [1, 2] * 5).parts(7)) == [(7, 7, 2), (8, 8, 1), (9, 9, 2)]
    assert list(Acknowledgement(0, 9, [1]).parts(7)) == [(7, 9, 1)]
    player = SharePlayer(extents((1000, 1001)), start=1000)
    player.acquire("a")
    looked_at: list[int] = []

    class Watched(Acknowledgement):
        """Notes that it is looked at."""

        def parts(self, start: int = 0) -> Iterator[tuple[int, int, int]]:
            looked_at.append(self.first)
            return super().parts(start)

    sent = [Watched(*each) for each in [*batches, Acknowledgement(1000, 1001, [1])]]
    assert player.acknowledge("a", *sent) == ErrorCode.NONE
    assert looked_at == [1000]


@pytest.mark.parametrize(
    ("batches", "may_renew", "expected"),
    [
        ([(0, 3, [1])], False, True),
        ([(0, 3, [0, 1, 2, 3])], False, True),
        ([(0, 3, [1, 1])], False, False),
        ([(0, 3, [1, 1, 1, 1, 1])], False, False),
        ([(0, 3, [])], False, False),
        ([(3, 0, [1])], False, False),
        ([(4, 5, [1]), (0, 3, [1])], False, False),
        ([(4, 5, [1]), (0, 3, [1]), (6, 6, [1])], False, False),
        ([(0, 3, [1]), (3, 4, [1])], False, True),
        ([(-2, 3, [1])], False, False),
        ([(0, 3, [-1])], False, False),
        ([(0, 3, [4])], False, False),
        ([(0, 3, [4])], True, True),
        ([(0, 3, [5])], True, False),
    ],
)
def test_batches_are_in_order_and_have_known_types(batches: list[Batch], may_renew: bool, expected: bool) -> None:
    assert acknowledged(*batches).is_valid(may_renew=may_renew) is expected
