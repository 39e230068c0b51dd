"""Work on all logs with pauses: an error with one of them ends the work on no other."""

from collections.abc import Awaitable
from typing import NamedTuple

import pytest

from ottla.pauses import begin, pause
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.rounds import Rounds, visit_all
from tests.support.background import ManualBackground
from tests.support.clocks import ManualClock
from tests.support.pauses import HandLoop, turns_by_hand


class Item(NamedTuple):
    topic_partition: TopicPartition
    pauses: int = 0
    is_faulty: bool = False


def items(*pauses: int) -> list[Item]:
    return [Item(TopicPartition("t", index), each) for index, each in enumerate(pauses)]


class Stage:
    """Rounds of which each visit and each end is written down."""

    def __init__(self) -> None:
        self.seen: list[int | str] = []
        self.background = ManualBackground(ManualClock())
        self.rounds: Rounds[Item] = Rounds(self.background, "upkeep", self._visit, lambda: self.seen.append("end"))

    async def _visit(self, item: Item) -> None:
        self.seen.append(item.topic_partition.partition)
        for _ in range(item.pauses):
            await pause()
            self.seen.append(item.topic_partition.partition)
        if item.is_faulty:
            raise ValueError("a fault")

    def turns(self, loop: HandLoop) -> list[list[int | str]]:
        """What was seen at once, and in each turn with a visit that followed."""
        found = [list(self.seen)]
        while loop.turn():
            found.append(self.seen[sum(map(len, found)) :])
        return [each for each in found if each]


def test_a_visit_and_a_round_pause() -> None:
    stage = Stage()
    with turns_by_hand() as loop:
        stage.rounds.begin(items(0, 2, 0))
        assert stage.turns(loop) == [[0], [1], [1], [1], [2], ["end"]]


def test_a_round_that_is_in_progress_goes_on_and_no_other_begins() -> None:
    stage = Stage()
    with turns_by_hand() as loop:
        stage.rounds.begin(items(0, 0))
        stage.rounds.begin(items(0, 0))
        assert stage.turns(loop) == [[0], [1], ["end"]]


def test_a_round_that_has_paused_ends_when_the_background_is_closed() -> None:
    stage = Stage()
    with turns_by_hand() as loop:
        stage.rounds.begin(items(0, 0))
        stage.background.is_closed = True
        assert stage.turns(loop) == [[0]]


@pytest.mark.parametrize("pauses", [0, 1])
def test_after_an_error_the_round_goes_on_and_the_next_one_begins(pauses: int, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    first, second, third = items(0, pauses, 0)
    with turns_by_hand() as loop:
        for _ in range(2):
            stage.rounds.begin([first, second._replace(is_faulty=True), third])
            stage.turns(loop)
    assert stage.seen == [0, *[1] * (pauses + 1), 2, "end"] * 2
    assert caplog.text.count("t-1: background task upkeep failed") == 2


def test_an_item_that_leaves_the_collection_meanwhile_is_visited_too() -> None:
    there = {each.topic_partition.partition: each for each in items(0, 0, 0)}
    done: list[int] = []

    def visit(item: Item) -> Awaitable[None] | None:
        done.append(item.topic_partition.partition)
        there.popitem()
        return None

    with turns_by_hand() as loop:
        begin(visit_all("upkeep", there.values(), visit))
        assert done == [0]
        while loop.turn():
            pass
    assert done == [0, 1, 2]
    assert not there
