"""Long work that pauses: the slice of a turn is shared, paused work resumes in order, and others run in between."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Coroutine, Generator
from itertools import count
from typing import Any

import pytest

from ottla.pauses import SORTED_AT_ONCE, begin, begin_slice, begin_slices, each, how_often, in_order, in_slices, is_over, pause
from tests.support.pauses import a_turn, at_once, every_pause_waits, steps_of

ELEMENTS_PER_SLICE = 10


def on_a_loop(scenario: Coroutine[Any, Any, None]) -> None:
    """On a loop whose clock goes on by one whenever it is read."""

    async def run() -> None:
        begin_slices(asyncio.get_running_loop(), count(1).__next__, ELEMENTS_PER_SLICE)
        await scenario

    asyncio.run(run())


async def work(name: str, elements: int, log: list[str]) -> None:
    for _ in range(elements):
        log.append(name)
        await pause()
    log.append(f"{name} ends")


def test_work_that_fits_into_a_slice_ends_at_once() -> None:
    async def scenario() -> None:
        log: list[str] = []
        begin(work("short", ELEMENTS_PER_SLICE - 1, log))
        assert log[-1] == "short ends"

    on_a_loop(scenario())


def test_longer_work_goes_on_in_later_turns_a_slice_in_each() -> None:
    async def scenario() -> None:
        log: list[str] = []
        begin(work("long", 100, log))
        most = before = 0
        while log[-1] != "long ends":
            before = len(log)
            await asyncio.sleep(0)
            most = max(most, len(log) - before)
        assert 1 < most <= ELEMENTS_PER_SLICE + 1

    on_a_loop(scenario())


def test_a_request_has_a_slice_of_its_own_in_a_turn_that_others_have_used() -> None:
    async def scenario() -> None:
        log: list[str] = []
        begin(work("long", 50, log))
        begin(work("shares", ELEMENTS_PER_SLICE - 1, log))
        assert log[-1] == "shares"
        begin_slice()
        begin(work("request", ELEMENTS_PER_SLICE - 1, log))
        assert log[-1] == "request ends"

    on_a_loop(scenario())


def test_all_work_of_a_turn_shares_one_slice() -> None:
    async def scenario() -> None:
        log: list[str] = []
        for number in range(20):
            begin(work(str(number), 50, log))
        assert len(log) <= ELEMENTS_PER_SLICE + 20, "after the first slice each has time for one element"
        most = 0
        while sum(name.endswith("ends") for name in log) < 20:
            before = len(log)
            await asyncio.sleep(0)
            most = max(most, len(log) - before)
        assert most <= ELEMENTS_PER_SLICE + 1

    on_a_loop(scenario())


def test_paused_work_resumes_in_order() -> None:
    async def scenario() -> None:
        every_pause_waits()
        log: list[str] = []
        for name in "abc":
            begin(work(name, 3, log))
        for _ in range(20):
            await a_turn()
        assert log == [*"abc" * 3, "a ends", "b ends", "c ends"]

    on_a_loop(scenario())


def test_work_of_the_next_turn_has_a_slice_again() -> None:
    async def scenario() -> None:
        log: list[str] = []
        begin(work("first", ELEMENTS_PER_SLICE - 1, log))
        await a_turn()
        begin(work("second", ELEMENTS_PER_SLICE - 1, log))
        assert log[-1] == "second ends"

    on_a_loop(scenario())


def test_paused_work_that_is_cancelled_lets_the_others_resume() -> None:
    async def scenario() -> None:
        every_pause_waits()
        log: list[str] = []
        tasks = [asyncio.create_task(work(name, 3, log)) for name in "ab"]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await tasks[1]
        assert log == ["a", "b", "b", "b", "b ends"]

    on_a_loop(scenario())


def test_work_without_an_event_loop_never_pauses() -> None:
    log: list[str] = []
    at_once(work("in a thread", 1000, log))
    assert log[-1] == "in a thread ends"
    assert not is_over()


def test_an_error_before_the_first_wait_is_raised_by_begin_and_a_later_one_reaches_the_loop() -> None:
    async def scenario() -> None:
        every_pause_waits()
        errors: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))

        async def fail(waits: bool) -> None:
            if waits:
                await pause()
            raise ValueError("planted")

        with pytest.raises(ValueError, match="planted"):
            begin(fail(False))
        begin(fail(True))
        for _ in range(3):
            await a_turn()
        assert isinstance(errors[0], ValueError)

    on_a_loop(scenario())


def test_every_loop_has_slices_of_its_own() -> None:
    for _ in range(2):
        log: list[str] = []

        async def scenario(log: list[str] = log) -> None:
            begin(work("long", 100, log))
            for _ in range(50):
                await a_turn()

        on_a_loop(scenario())
        assert len(log) == 101


def test_the_result_of_a_generator_is_that_of_its_slices() -> None:
    def generator() -> Any:
        yield
        yield
        return 7

    assert steps_of(in_slices(generator())) == (2, 7)


def test_each_item_is_made_and_counted() -> None:
    assert at_once(each(range(3), str)) == ["0", "1", "2"]
    assert at_once(how_often("abca")) == {"a": 2, "b": 1, "c": 1}


def test_items_are_sorted_some_at_once() -> None:
    number = 5 * SORTED_AT_ONCE
    steps, items = steps_of(in_order(each * 7919 % number for each in range(number)))
    assert steps == 5
    assert list(items) == list(range(number))


def test_what_was_made_in_slices_refers_to_nothing_that_refers_to_it() -> None:
    class Made:
        pass

    def steps() -> Generator[None, None, Made]:
        yield
        return Made()

    gc.collect()
    gc.disable()
    try:
        made = weakref.ref(at_once(in_slices(steps())))
        assert made() is None, "in compiled code a function within a coroutine refers to itself"
    finally:
        gc.enable()
