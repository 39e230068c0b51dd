"""Provides an event loop whose time passes only when no task can run, so that tests of backoffs and long polls take no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _Selector(selectors.DefaultSelector):
    """Does not wait: what the loop would have slept is added to its time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("everybody waits for something that never comes")
        self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. Its clock is also a `ottla.storage.disk.clock.Clock`."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def monotonic(self) -> float:
        return self._virtual.now

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._virtual.now * 1000)


def in_virtual_time(scenario: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Makes a test of a scenario, a minute of virtual time long at most."""

    def test() -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(_limited(scenario()))

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


async def _limited(scenario: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(60):
        await scenario
