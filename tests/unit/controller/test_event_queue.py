"""The end of the controller's event queue."""

import asyncio
import time

import pytest

from ottla.controller.errors import ControllerMoved, StoreUnavailable
from ottla.controller.state import event_queue
from ottla.controller.state.event_queue import EventQueue


async def on_error(error: Exception) -> None:
    raise AssertionError(error)


def test_the_current_event_is_finished_and_the_next_is_not_begun() -> None:
    done: list[str] = []

    async def scenario() -> None:
        queue = EventQueue(on_error, time.monotonic)
        began, go_on = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            began.set()
            await go_on.wait()
            done.append("first")

        async def second() -> None:
            done.append("second")

        queue.put("first", first)
        queue.put("second", second)
        queue.start()
        await began.wait()
        stopping = asyncio.ensure_future(queue.stop())
        await asyncio.sleep(0)
        go_on.set()
        await stopping

    asyncio.run(asyncio.wait_for(scenario(), 10))
    assert done == ["first"]


def test_an_event_that_waits_for_a_store_that_is_away_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_queue, "LAST_EVENT_SECONDS", 0.01)

    async def scenario() -> None:
        queue = EventQueue(on_error, time.monotonic)
        queue.start()
        caller = asyncio.ensure_future(queue.call("waits", asyncio.Event().wait))
        await asyncio.sleep(0)
        await queue.stop()
        assert isinstance((await asyncio.gather(caller, return_exceptions=True))[0], asyncio.CancelledError)

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_the_next_event_is_handled_whatever_the_reaction_to_an_error_raises(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[str] = []
    raised = [ControllerMoved("again"), RuntimeError("a fault"), StoreUnavailable("metadata", "disk full")]

    async def failing(error: Exception) -> None:
        reported.append(str(error))
        if raised:
            raise raised.pop(0)

    async def scenario() -> None:
        queue = EventQueue(failing, time.monotonic)
        queue.start()

        async def moved() -> None:
            raise ControllerMoved("first")

        async def nothing() -> None:
            return

        for _ in range(2):
            with pytest.raises(ControllerMoved):
                await queue.call("moved", moved)
        await queue.call("next", nothing)
        await queue.stop()

    asyncio.run(asyncio.wait_for(scenario(), 10))
    assert reported == ["first", "again", "first"]
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "the controller could not react to an error; it goes on with the next event",
        f"the controller could not react to an error (first), because of another one: {StoreUnavailable('metadata', 'disk full')}",
    ]
