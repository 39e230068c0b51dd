"""Gives handlers that are generators the names that they know; the others are coroutines that call `ottla.pauses.pause`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable
from types import GeneratorType
from typing import Final, TypeAlias, TypeVar

from ottla.pauses import in_slices, pause

_T = TypeVar("_T")
_Made = TypeVar("_Made")
_Key = TypeVar("_Key", bound=Hashable)

Steps: TypeAlias = Generator[None, None, _T]


def _no_steps() -> Steps[None]:
    yield


GENERATORS: Final = frozenset({GeneratorType, type(_no_steps())})
"""The types of `Steps`."""


def each(items: Iterable[_T], make: Callable[[_T], _Made]) -> Steps[list[_Made]]:
    """`[make(item) for item in items]` in steps."""
    made = []
    for item in items:
        made.append(make(item))
        yield
    return made


def how_often(items: Iterable[_Key]) -> Steps[dict[_Key, int]]:
    """The number of occurrences of each item, in steps."""
    times: dict[_Key, int] = {}
    for item in items:
        times[item] = times.get(item, 0) + 1
        yield
    return times


class Turns:
    """Runs steps for coroutines."""

    spread = staticmethod(in_slices)
    pause = staticmethod(pause)
