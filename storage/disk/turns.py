"""Spreads work on very many items over turns of the event loop, so that other work runs in between."""

import logging
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeVar

from ottla.storage.disk.background import Background

log = logging.getLogger(__name__)

_T = TypeVar("_T")


def in_turns(
    background: Background, name: str, items: Sequence[_T], per_turn: int, act: Callable[[_T], object], then: Callable[[], None]
) -> None:
    """Calls `act` with `per_turn` of `items` at once, and with as many in each later turn; then calls `then`.

    An error of `act` is logged, and the other items follow.
    """
    left = iter(items)
    turns = -(-len(items) // per_turn)

    def turn() -> None:
        nonlocal turns
        turns -= 1
        for each in islice(left, per_turn):
            try:
                act(each)
            except Exception:
                log.exception("background task %s failed for one item; it goes on with the others", name)
        if turns > 0:
            background.schedule(name, 0, 0, turn)
        else:
            then()

    turn()
