"""Time that a test advances: the order of timers, those that remain, and those that were cancelled."""

import asyncio

import pytest

from ottla.ephemeral.advanced_time import MOST_SECONDS, AdvancedTime


def test_timers_that_become_due_are_called_in_the_order_of_their_times() -> None:
    seen: list[str] = []

    async def main() -> None:
        advanced = AdvancedTime()
        for seconds, name in ((300, "c"), (100, "a"), (100, "b"), (10_000, "late")):
            advanced.call_later(seconds, lambda name=name: seen.append(name))
        advanced.advance(400)
        await asyncio.sleep(0.01)
        assert seen == ["a", "b", "c"]
        advanced.advance(9_000)
        await asyncio.sleep(0.01)
        assert seen == ["a", "b", "c"]
        advanced.advance(600.1)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert seen == ["a", "b", "c", "late"]


def test_a_timer_of_a_timer_begins_at_the_new_time() -> None:
    seen: list[str] = []

    async def main() -> None:
        advanced = AdvancedTime()
        advanced.call_later(60, lambda: advanced.call_later(60, lambda: seen.append("second")))
        advanced.advance(1000)
        await asyncio.sleep(0.01)
        assert seen == []
        advanced.advance(61)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert seen == ["second"]


def test_a_cancelled_timer_is_not_called() -> None:
    seen: list[str] = []

    async def main() -> None:
        advanced = AdvancedTime()
        timer = advanced.call_later(60, lambda: seen.append("cancelled"))
        advanced.advance(60)
        timer.cancel()
        timer.cancel()
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert seen == []


@pytest.mark.parametrize("seconds", [-0.001, MOST_SECONDS + 1, float("nan"), float("inf")])
def test_time_moves_only_forward(seconds: float) -> None:
    advanced = AdvancedTime()

    with pytest.raises(ValueError, match="time advances by"):
        advanced.advance(seconds)
    assert advanced.advanced_s == 0
