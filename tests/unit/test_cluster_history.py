"""The judge of histories finds each kind of wrong, and nothing where nothing is wrong."""

import pytest

from tests.support.history import History, Place, Record, decode


def a_history(*, sent: int = 3) -> History:
    """Records 0.. of one producer, sent, acknowledged at their numbers."""
    history = History()
    for number in range(sent):
        history.sent(Record("w", number), 0)
        history.acknowledged(Record("w", number), Place(0, number))
    return history


def read(history: History, *places: tuple[int, int], consumer: str = "r") -> list[str]:
    """A consumer reads (number, offset) of partition 0; the kinds of what is wrong."""
    for number, offset in places:
        history.polled(consumer, Record("w", number), Place(0, offset))
    return [line.partition(":")[0] for line in history.violations()]


def test_what_was_sent_acknowledged_and_read_in_order_is_right() -> None:
    history = a_history()
    assert read(history, (0, 0), (1, 1), (2, 2)) == []
    assert read(history, (0, 0), (1, 1), (2, 2), consumer="another") == []


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    history = a_history()
    history.sent(Record("w", 3), 0)
    history.sent(Record("w", 4), 0)
    assert read(history, (0, 0), (1, 1), (2, 2), (4, 3)) == []


@pytest.mark.parametrize(
    ("places", "kinds"),
    [
        (((0, 0), (2, 2)), ["lost", "gap"]),
        (((0, 0), (1, 1)), ["lost"]),
        (((0, 0), (1, 1), (2, 2), (1, 3)), ["duplicate", "reordered"]),
        (((0, 0), (2, 1), (1, 2)), ["misplaced", "misplaced", "reordered"]),
        (((0, 0), (1, 1), (2, 2), (7, 3)), ["unseen"]),
        (((0, 0), (1, 1), (0, 0), (2, 2)), ["backwards"]),
        (((0, 0), (1, 1), (2, 2), (2, 2)), ["backwards"]),
    ],
)
def test_each_kind_of_wrong_is_found(places: tuple[tuple[int, int], ...], kinds: list[str]) -> None:
    assert read(a_history(), *places) == kinds


def test_two_readers_that_see_different_records_at_one_offset_are_found() -> None:
    history = a_history()
    read(history, (0, 0), (1, 1), (2, 2))
    history.sent(Record("x", 0), 0)
    history.polled("another", Record("x", 0), Place(0, 1))
    assert any(line.startswith("changed") for line in history.violations())


def test_values_carry_their_record() -> None:
    assert decode(Record("w", 12).encode(100)) == Record("w", 12)
    assert len(Record("w", 12).encode(100)) == 100
