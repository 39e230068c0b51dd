"""Declares the effects of the state machine of a share partition, in addition to `coordination.effects`."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ottla.coordination.partitions.effects import Arm, Reply
from ottla.coordination.shares.record_states import StateBatch


class Store(NamedTuple):
    """Let the share coordinator store these states, and call `on_stored` with the result. Only one is in progress at a time."""

    start_offset: int
    complete_count: int
    """Offsets from the start on whose records are never delivered again (KIP-1226)."""
    batches: tuple[StateBatch, ...]


Effect: TypeAlias = Reply | Arm | Store

LOCKS = "locks"
"""The key of the timer that ends locks."""
