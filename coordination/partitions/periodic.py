"""Runs the periodic checks of a coordinator: each in a task, and never twice at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ottla.replication.waiting.timing_wheel import TimerTask, TimingWheel


class PeriodicChecks:
    """See the module. A check that is still running when it is due again is left to end."""

    def __init__(self, name: str, timing_wheel: TimingWheel, *checks: tuple[Callable[[], Coroutine[Any, Any, None]], int]) -> None:
        """`checks` are functions with their intervals in ms; `name` is that of their tasks."""
        self._name = name
        self._timing_wheel = timing_wheel
        self._checks = [_Check(look, interval_ms) for look, interval_ms in checks]

    def start(self) -> None:
        """Begin to wait for the first round of each check."""
        for each in self._checks:
            self._arm(each)

    async def stop(self) -> None:
        """Cancel the checks, and wait for those that are running."""
        for each in self._checks:
            if each.timer is not None:
                each.timer.cancel()
            if each.task is not None:
                each.task.cancel()
                await asyncio.gather(each.task, return_exceptions=True)

    @property
    def are_idle(self) -> bool:
        """Whether no check is running."""
        return all(each.task is None or each.task.done() for each in self._checks)

    def _arm(self, each: _Check) -> None:
        each.timer = self._timing_wheel.add(each.interval_ms, partial(self._begin, each))

    def _begin(self, each: _Check) -> None:
        if each.task is None or each.task.done():
            each.task = asyncio.get_running_loop().create_task(each.look(), name=self._name)
        self._arm(each)


class _Check:
    __slots__ = ("interval_ms", "look", "task", "timer")

    def __init__(self, look: Callable[[], Coroutine[Any, Any, None]], interval_ms: int) -> None:
        self.look = look
        self.interval_ms = interval_ms
        self.timer: TimerTask | None = None
        self.task: asyncio.Task[None] | None = None
