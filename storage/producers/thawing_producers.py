"""What `ProducerState.producers` is while a snapshot of a log's many producers is being written: the same to whoever asks, and nothing of
what the snapshot is to hold changes. A second snapshot may wait for the first one; what has changed in between is then frozen, too.

Invariant: the entries that were there when the snapshots began are neither changed nor removed; who asks for one gets a copy, which is the
producer's entry from then on.
"""

from collections.abc import Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.producers.state import ProducerStateEntry


class ThawingProducers(Mapping[int, "ProducerStateEntry"]):
    """By producer id. Each entry that is asked for in the meantime costs a copy; a plain dict has no such cost, and is what is there most
    of the time."""

    __slots__ = ("_changed", "_frozen", "_new", "_waiting")

    def __init__(self, frozen: "dict[int, ProducerStateEntry]") -> None:
        self._frozen = frozen
        self._waiting: dict[int, ProducerStateEntry] | None = None
        """What had changed when the second snapshot was asked for; None without one."""
        self._changed: dict[int, ProducerStateEntry] = {}
        self._new = 0
        """How many of those are not in `_frozen`."""

    def __getitem__(self, producer_id: int) -> "ProducerStateEntry":
        entry = self._changed.get(producer_id)
        if entry is None:
            waiting = self._waiting
            frozen = self._frozen if waiting is None or producer_id not in waiting else waiting
            entry = self._changed[producer_id] = frozen[producer_id].copy()
        return entry

    def __setitem__(self, producer_id: int, entry: "ProducerStateEntry") -> None:
        if producer_id not in self:
            self._new += 1
        self._changed[producer_id] = entry

    def __contains__(self, producer_id: object) -> bool:
        waiting = self._waiting
        return producer_id in self._changed or producer_id in self._frozen or (waiting is not None and producer_id in waiting)

    def __iter__(self) -> Iterator[int]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._frozen) + self._new

    def values(self) -> "ValuesView[ProducerStateEntry]":
        """To be read only: most of them are those of the snapshot."""
        return self._all().values()

    def freeze_again(self) -> None:
        """For a snapshot that follows the one that is being written. Takes the place of another that waits for the same."""
        if self._waiting is None:
            self._waiting = self._changed
        else:
            self._waiting.update(self._changed)
        self._changed = {}

    def frozen_again(self) -> "dict[int, ProducerStateEntry] | None":
        """The first snapshot is written: what the second one is to hold, from now on the frozen ones; None without a second one."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return None
        count = len(self)
        self._frozen.update(waiting)
        self._new = count - len(self._frozen)
        return self._frozen

    def thawed(self) -> "dict[int, ProducerStateEntry]":
        """All of them as they are now, in the order in which they were first seen. Nothing is to be written: this is of no use any more."""
        self.frozen_again()
        self._frozen.update(self._changed)
        return self._frozen

    def _all(self) -> "dict[int, ProducerStateEntry]":
        return {**self._frozen, **(self._waiting or {}), **self._changed}
