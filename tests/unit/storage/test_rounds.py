"""Work on all logs in turns of the event loop: an error with one of them ends the work on no other."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.rounds import Rounds
from ottla.storage.disk.turns import in_turns
from tests.support.background import ManualBackground
from tests.support.clocks import ManualClock


class Item(NamedTuple):
    topic_partition: TopicPartition
    costs: tuple[int, ...] = ()
    is_faulty: bool = False


def items(*costs: tuple[int, ...]) -> list[Item]:
    return [Item(TopicPartition("t", index), each) for index, each in enumerate(costs)]


class Stage:
    """Rounds of which each visit and each end is written down."""

    def __init__(self) -> None:
        self.background = ManualBackground(ManualClock())
        self.seen: list[int | str] = []
        self.rounds: Rounds[Item] = Rounds(self.background, "upkeep", self._visit, lambda: self.seen.append("end"))

    def _visit(self, item: Item) -> Iterator[int]:
        self.seen.append(item.topic_partition.partition)
        yield from item.costs
        if item.is_faulty:
            raise ValueError("a fault")

    def turns(self) -> list[list[int | str]]:
        """What was seen at once, and in each turn that followed."""
        found = [list(self.seen)]
        while self.background.turn():
            found.append(self.seen[sum(map(len, found)) :])
        return found


def test_a_turn_ends_when_it_has_cost_as_much_as_it_may() -> None:
    stage = Stage()
    stage.rounds.begin(items((), (), (5,), (1, 1, 1), ()), per_turn=3)
    assert stage.turns() == [[0, 1, 2], [3], [4, "end"]]


def test_a_round_that_is_in_progress_goes_on_and_no_other_begins() -> None:
    stage = Stage()
    stage.rounds.begin(items((), ()), per_turn=1)
    stage.rounds.begin(items((), ()), per_turn=1)
    assert stage.turns() == [[0], [1, "end"]]


@pytest.mark.parametrize("costs", [(), (1,)])
def test_after_an_error_the_round_goes_on_and_the_next_one_begins(costs: tuple[int, ...], caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    first, second, third = items((), costs, ())
    for _ in range(2):
        stage.rounds.begin([first, second._replace(is_faulty=True), third], per_turn=2)
        stage.turns()
    assert stage.seen == [0, 1, 2, "end"] * 2
    assert caplog.text.count("t-1: background task upkeep failed") == 2


def test_after_an_error_with_one_item_the_others_have_their_turn(caplog: pytest.LogCaptureFixture) -> None:
    background = ManualBackground(ManualClock())
    done: list[float] = []
    ended: list[bool] = []
    in_turns(background, "upkeep", [1, 0, 2], 2, lambda each: done.append(1 / each), lambda: ended.append(True))
    background.advance()
    assert (done, ended) == ([1, 0.5], [True])
    assert "background task upkeep failed for one item" in caplog.text
