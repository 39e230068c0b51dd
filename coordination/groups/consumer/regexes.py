"""Evaluates regular expressions of clients over names, with the library RE2. Its time grows with the length of a name alone.

Python's own `re` is never used: a short expression can keep it busy for years. Without the library every expression is refused. Expressions
of clients are compiled and evaluated in threads (`RegexThreads`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import cache, partial
from importlib import import_module
from typing import Any, Final, TypeVar

from ottla.storage.disk.yielding import PacedYield

_T = TypeVar("_T")

MAX_MEM: Final = 1024 * 1024
"""Memory of an expression, bytes. It bounds the compiled program to some 10,000 steps, and so the time that each character takes. With the
limit of the library, 8 MiB, a hostile expression takes 50 to 150 ms to compile, and 3 to 5 ms for a character."""
MOST_THREADS: Final = 2
"""Threads that evaluate expressions at the same time. A hostile expression can keep one busy for minutes."""

NOT_INSTALLED = "the broker lacks the library RE2, which comes with ottla[regex]"


@cache
def _library() -> Any:
    """RE2; None if it is not installed. It takes 4 MB of memory, so it is loaded with the first expression."""
    try:
        return import_module("re2")
    except ImportError:
        return None


def _compiled(regex: str, re2: Any) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEM
    options.never_capture = True  # whether a name matches is all that is asked
    found = re2.compile(regex, options)
    re2.purge()  # the library would keep the latest 128
    return found


def reason_against(regex: str) -> str | None:
    """Why a regular expression cannot be used; None if it can."""
    re2 = _library()
    if re2 is None:
        return NOT_INSTALLED
    try:
        _compiled(regex, re2)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return None


def full_match(regex: str) -> Callable[[str], object] | None:
    """A function that matches a text as a whole; None for an expression that cannot be used."""
    re2 = _library()
    if re2 is None:
        return None
    try:
        found: Callable[[str], object] = _compiled(regex, re2).fullmatch
    except re2.error:
        return None
    return found


def matching_of(regex: str, names: Iterable[str]) -> list[str] | None:
    """The names that a regular expression matches as a whole; None for an expression that cannot be used."""
    matches = full_match(regex)
    if matches is None:
        return None
    pause = PacedYield()
    found = []
    for name in names:
        if matches(name):
            found.append(name)
        pause()
    return found


def matches_of(regexes: Iterable[str], topics: Iterable[str]) -> dict[str, list[str]]:
    """By regular expression, the names that it matches as a whole. One that is not valid matches nothing."""
    pause = PacedYield()
    found: dict[str, list[str]] = {}
    for regex in regexes:
        found[regex] = matching_of(regex, topics) or []
        pause()
    return found


class RegexThreads:
    """Runs the functions above in threads of a broker, MOST_THREADS at a time, so that the others are free for other work."""

    __slots__ = ("_turn", "_workers")

    def __init__(self, workers: Executor) -> None:
        self._turn = asyncio.Semaphore(MOST_THREADS)
        self._workers = workers

    async def run(self, work: Callable[..., _T], *arguments: object) -> _T:
        """Waits for a turn, and for the result of `work`. The turn of a caller that is cancelled lasts until its thread is done."""
        await self._turn.acquire()
        try:
            running = asyncio.get_running_loop().run_in_executor(self._workers, partial(work, *arguments))
        except BaseException:
            self._turn.release()
            raise
        running.add_done_callback(lambda _: self._turn.release())
        return await asyncio.shield(running)
