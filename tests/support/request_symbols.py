"""Defines symbols for values of random requests that differ by broker; `RequestPlayer` replaces them."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class IdOf(NamedTuple):
    """The id that the topic of this name has, or had last."""

    topic: str


class Own(Enum):
    """Something that each broker has one of."""

    SESSION = "the fetch session that was begun last"
    NEXT_EPOCH = "the epoch that this session expects"
    DATA_DIRECTORY = "the log directory"

    def __repr__(self) -> str:
        return self.name


SESSION: Final = Own.SESSION
NEXT_EPOCH: Final = Own.NEXT_EPOCH
DATA_DIRECTORY: Final = Own.DATA_DIRECTORY
