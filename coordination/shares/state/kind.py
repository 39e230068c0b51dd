"""Describes the states of share partitions to `coordination.elections`: how they are loaded, and what follows."""

from __future__ import annotations

from ottla.coordination.shares.state.loading import ShareStateLoader
from ottla.coordination.shares.state.stored_state import StoredState
from ottla.large_table import LargeTable


class ShareStateKind:
    """See the module. Implements `coordination.elections.StateKind`."""

    noun = "share partitions"

    waits_for_replicas = True
    """A leader acts on what it reads: records that were acknowledged are not delivered again."""

    def loader(self, name: str) -> ShareStateLoader:
        """A reader for the log of a partition of this name."""
        return ShareStateLoader(name)

    def on_loaded(self, state: StoredState) -> None:
        """Nothing follows: a state has no timers."""

    def on_unloaded(self, states: LargeTable[str, StoredState]) -> None:
        """Nothing follows: appends in flight fail, and so their requests are answered."""
