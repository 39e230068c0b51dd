"""Timers on the loop and work in threads, as storage asks for them."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from ottla.broker.loop.background import LoopBackground, in_thread

SECONDS = 90.0
Result = TypeVar("Result")


def run(scenario: Callable[[LoopBackground], "asyncio.Future[Result]"]) -> Result:
    """Runs until the future that `scenario` returns is done; its result."""

    async def main() -> Result:
        with ThreadPoolExecutor(8) as executor:
            background = LoopBackground(executor)
            try:
                return await asyncio.wait_for(scenario(background), SECONDS)
            finally:
                background.close()

    return asyncio.run(main())


def test_work_of_one_name_is_done_in_order_and_one_at_a_time() -> None:
    log: list[str] = []
    active: list[int] = []

    def scenario(background: LoopBackground) -> "asyncio.Future[None]":
        finished = asyncio.get_running_loop().create_future()

        def work(number: int) -> None:
            active.append(number)
            assert active == [number]
            log.append(f"do {number}")
            active.remove(number)

        def then(number: int, error: BaseException | None) -> None:
            assert error is None
            log.append(f"then {number}")
            if number == 19:
                finished.set_result(None)

        for number in range(20):
            background.submit("delete", lambda n=number: work(n), lambda error, n=number: then(n, error))  # type: ignore[misc]  # lambdas with defaults
        return finished

    run(scenario)
    assert [entry for entry in log if entry.startswith("do")] == [f"do {number}" for number in range(20)]
    assert [entry for entry in log if entry.startswith("then")] == [f"then {number}" for number in range(20)]


def test_work_of_other_names_does_not_wait() -> None:
    def scenario(background: LoopBackground) -> "asyncio.Future[BaseException | None]":
        finished = asyncio.get_running_loop().create_future()
        released = threading.Event()
        background.submit("slow", lambda: _wait(released), finished.set_result)
        background.submit("other", released.set, lambda error: None)
        return finished

    assert run(scenario) is None


def _wait(event: threading.Event, seconds: float = SECONDS) -> None:
    assert event.wait(seconds)


def test_what_failed_is_told_and_the_next_goes_on() -> None:
    errors: list[BaseException | None] = []

    def scenario(background: LoopBackground) -> "asyncio.Future[None]":
        finished = asyncio.get_running_loop().create_future()

        def fail() -> None:
            raise OSError("no")

        def last(error: BaseException | None) -> None:
            errors.append(error)
            finished.set_result(None)

        background.submit("write", fail, errors.append)
        background.submit("write", lambda: None, last)
        return finished

    run(scenario)
    assert [str(error) for error in errors] == ["no", "None"]


def test_a_callback_may_ask_for_more_of_the_same() -> None:
    def scenario(background: LoopBackground) -> "asyncio.Future[None]":
        finished = asyncio.get_running_loop().create_future()
        background.submit(
            "write", lambda: None, lambda error: background.submit("write", lambda: None, lambda error: finished.set_result(None))
        )
        return finished

    run(scenario)


def test_what_waits_at_the_close_is_still_done_and_nothing_is_called(caplog: pytest.LogCaptureFixture) -> None:
    begun: list[str] = []

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            background = LoopBackground(executor)
            released = threading.Event()
            background.submit("write", lambda: _wait(released), lambda error: begun.append("then"))
            background.submit("write", lambda: begun.append("second"), lambda error: begun.append("then"))
            background.submit("write", lambda: _wait(threading.Event(), 0), lambda error: begun.append("then"))
            background.close()
            released.set()
        await asyncio.sleep(0)
        background.submit("write", lambda: begun.append("third"), lambda error: None)

    asyncio.run(main())
    assert begun == ["second"]
    assert [record.message for record in caplog.records] == ["background task write failed"]


def test_what_waits_at_the_close_waits_on_for_what_is_under_way() -> None:
    async def main() -> None:
        with ThreadPoolExecutor(2) as executor:
            background = LoopBackground(executor)
            released, overtaken = threading.Event(), threading.Event()
            background.submit("write", lambda: _wait(released), lambda error: None)
            background.submit("write", overtaken.set, lambda error: None)
            background.close()
            is_overtaken = overtaken.wait(0.1)
            released.set()
        assert not is_overtaken
        assert overtaken.is_set()

    asyncio.run(main())


def test_what_a_timer_held_is_let_go_when_it_has_fired() -> None:
    class Held:
        def fire(self) -> None:
            fired.set()

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            background = LoopBackground(executor)
            held = Held()
            gone = weakref.ref(held)
            background.schedule("once", 0, 0, held.fire)
            del held
            assert gone() is not None
            await fired.wait()
            await asyncio.sleep(0)
            assert gone() is None
            background.close()

    fired = asyncio.Event()
    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


def test_work_whose_caller_is_cancelled_is_told_to_end_and_waited_for() -> None:
    ending, ended = threading.Event(), threading.Event()

    def work() -> None:
        assert ending.wait(SECONDS)
        ended.set()
        raise OSError("nobody is interested")

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            task = asyncio.ensure_future(in_thread(executor, work, on_cancelled=ending.set))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended.is_set()

    asyncio.run(main())


def test_work_without_a_positive_period_is_done_once() -> None:
    calls: list[str] = []

    def scenario(background: LoopBackground) -> "asyncio.Future[None]":
        finished = asyncio.get_running_loop().create_future()
        for period_ms in (0, -1):
            background.schedule("once", 0, period_ms, lambda: calls.append("once"))
        background.schedule("end", 5, 0, lambda: finished.set_result(None))
        return finished

    run(scenario)
    assert calls == ["once", "once"]
