"""Batches of acknowledgements are joined where that changes nothing, and checked."""

from __future__ import annotations

import pytest

from ottla.coordination.shares.acknowledgements import are_valid, join_to
from ottla.coordination.shares.record_states import Acknowledgement
from ottla.protocol.messages.share_fetch import AcknowledgementBatch

Batch = tuple[int, int, list[int]]


def joined(*batches: Batch) -> list[Batch]:
    found: list[Acknowledgement] = []
    for first, last, types in batches:
        join_to(found, [AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)])
    return [(each.first, each.last, list(each.types)) for each in found]


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


@pytest.mark.parametrize(
    "batches",
    [
        [(3, 3, [1]), (3, 3, [1])],
        [(3, 5, [1]), (4, 6, [1])],
        [(4, 3, [1]), (4, 4, [1])],
        [(3, 3, [1]), (4, 3, [1])],
        [(3, 3, []), (4, 4, [])],
        [(5, 5, [1]), (4, 4, [1])],
    ],
)
def test_what_is_refused_stays_as_it_was_sent(batches: list[Batch]) -> None:
    assert joined(*batches) == batches


def test_a_million_batches_of_neighbours_are_one() -> None:
    batches = [AcknowledgementBatch(first_offset=at, last_offset=at, acknowledge_types=[0]) for at in range(1_000_000)]
    found: list[Acknowledgement] = []
    join_to(found, batches)
    assert found == [Acknowledgement(0, 999_999, [0])]


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
        ([(-2, 3, [1])], False, False),
        ([(0, 3, [-1])], False, False),
        ([(0, 3, [4])], False, False),
        ([(0, 3, [4])], True, True),
        ([(0, 3, [5])], True, False),
    ],
)
def test_batches_are_in_order_and_have_known_types(batches: list[Batch], may_renew: bool, expected: bool) -> None:
    assert are_valid([Acknowledgement(*each) for each in batches], may_renew=may_renew) is expected
