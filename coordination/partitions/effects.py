"""Declares the effects that the state machines of all coordinators share; each coordinator adds effects of its own.

A transition of a state machine returns effects in the order in which `runner` carries them out. Every waiter that was passed to an event is
in exactly one `Reply`. Errors are values here, because most of them answer an earlier waiter, not the sender of the event.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple


class Reply(NamedTuple):
    """Answer a waiter."""

    waiter: object
    result: object


class Arm(NamedTuple):
    """Call `on_timer` with `key` after `delay_ms`; replaces an earlier timer of the key."""

    key: Hashable
    delay_ms: int


class Disarm(NamedTuple):
    """Do not call `on_timer` with `key`, if it was armed."""

    key: Hashable


class Many(NamedTuple):
    """Carry out all of these in order, each created when its turn comes. So a decision about thousands of members is carried out in
    parts."""

    effects: Iterator[Reply | Arm]
    concerned: int
    """The number of members, or similar objects, that the decision visited: 1 µs each."""
