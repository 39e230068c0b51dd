"""Runs blocking or long computing work in threads: `background.threads` of them, also after that number changes.

An Executor for `loop.run_in_executor`. After a change new work goes to new threads, and the old ones end after their current work.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from ottla.config.broker import BrokerConfig
from ottla.config.keys.general import BACKGROUND_THREADS

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class WorkerThreads(Executor):
    """The worker threads of a broker. Call `submit` and `resize` on one thread."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._threads = _threads(config[BACKGROUND_THREADS])
        self._former: list[ThreadPoolExecutor] = []
        config.on_change(self._on_change, (BACKGROUND_THREADS,))

    def submit(
        self, function: Callable[_Arguments, _Result], /, *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> Future[_Result]:
        """Have a thread call the function."""
        return self._threads.submit(function, *arguments, **named)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all threads, including former ones."""
        for threads in (*self._former, self._threads):
            threads.shutdown(wait, cancel_futures=cancel_futures)

    def _on_change(self, _: frozenset[str]) -> None:
        former, self._threads = self._threads, _threads(self._config[BACKGROUND_THREADS])
        former.shutdown(wait=False)
        self._former.append(former)


def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="ottla-worker")
