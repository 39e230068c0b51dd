"""Alternating sides: the order of their windows, a side that ends early, and a failure."""

from itertools import groupby

import pytest

from benchmarks.turns.alternation import Alternation, Share


def windows_of(count: int, name: str, seen: list[str], share: Share) -> None:
    for number in range(count):
        seen.append(name)
        share.after_window(number)


def test_the_windows_of_two_sides_are_in_balanced_order() -> None:
    seen: list[str] = []

    Alternation().run([lambda share: windows_of(4, "a", seen, share), lambda share: windows_of(4, "b", seen, share)])

    assert "".join(seen) == "abbaabba"


def test_three_sides_take_turns() -> None:
    seen: list[str] = []

    def work(name: str, share: Share) -> None:
        for _ in range(2):
            seen.append(name)
            share.pass_on()

    Alternation().run([lambda share, name=name: work(name, share) for name in "abc"])

    assert "".join(seen) == "abcabc"


def test_a_side_goes_on_alone_when_the_other_has_ended() -> None:
    seen: list[str] = []

    Alternation().run([lambda share: windows_of(1, "a", seen, share), lambda share: windows_of(6, "b", seen, share)])

    assert [(name, len(list(group))) for name, group in groupby(seen)] == [("a", 1), ("b", 6)]


def test_a_failure_ends_the_other_side_at_its_next_window() -> None:
    cleaned_up: list[str] = []

    def fails(share: Share) -> None:
        share.pass_on()
        raise RuntimeError("the disk is full")

    def goes_on(share: Share) -> None:
        try:
            for _ in range(1000):
                try:
                    share.pass_on()
                except Exception:
                    pytest.fail("a part could have caught the end of the run")
        finally:
            cleaned_up.append("broker")

    with pytest.raises(RuntimeError, match="disk is full"):
        Alternation().run([fails, goes_on])
    assert cleaned_up == ["broker"]
