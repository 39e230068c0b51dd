"""Evaluates regular expressions over the names of topics, with the library RE2. Its time grows with the length of a name alone.

Python's own `re` is never used: a short expression can keep it busy for years. Without the library every expression is refused. These
functions run in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from ottla.storage.disk.yielding import PacedYield

try:
    re2: Any = import_module("re2")
except ImportError:
    re2 = None

NOT_INSTALLED = "the broker lacks the library RE2, which comes with ottla[regex]"


def _compiled(regex: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(regex, options)


def reason_against(regex: str) -> str | None:
    """Why a regular expression cannot be used; None if it can."""
    if re2 is None:
        return NOT_INSTALLED
    try:
        _compiled(regex)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return None


def full_match(regex: str) -> Callable[[str], object] | None:
    """A function that matches a text as a whole; None for an expression that cannot be used."""
    if reason_against(regex) is not None:
        return None
    found: Callable[[str], object] = _compiled(regex).fullmatch
    return found


def matches_of(regexes: Iterable[str], topics: Iterable[str]) -> dict[str, list[str]]:
    """By regular expression, the names that it matches as a whole. One that is not valid matches nothing."""
    pause = PacedYield()
    found: dict[str, list[str]] = {}
    for regex in regexes:
        if reason_against(regex) is not None:
            found[regex] = []
            continue
        full_match = _compiled(regex).fullmatch
        names = found[regex] = []
        for name in topics:
            if full_match(name):
                names.append(name)
            pause()
    return found
