"""Declares what any coordinator's state machines may want done; each adds effects of its own.

A transition of a state machine returns effects in the order in which `runner` is to carry them out. Every waiter that was given to an event
comes back in exactly one `Reply`. Errors are values here: most of them answer an earlier waiter, not the sender of the event.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple


class Reply(NamedTuple):
    """Answer a waiter."""

    waiter: object
    result: object


class Arm(NamedTuple):
    """Call `on_timer` with `key` after `delay_ms`; replaces what was armed for the key before."""

    key: Hashable
    delay_ms: int


class Disarm(NamedTuple):
    """Do not call `on_timer` with `key`, if it was armed."""

    key: Hashable


class Many(NamedTuple):
    """Do all of these in order, each made when its turn comes: what concerns thousands is decided at once and done a part at a time."""

    effects: Iterator[Reply | Arm]
    concerned: int
    """The members, or their like, that were looked at to decide: 1 µs was taken for each."""
