"""What `ProducerState.producers` is while a snapshot of a log's many producers is being written: the same to whoever asks, and nothing of
what the snapshot is to hold changes.

Invariant: the entries that were there when the snapshot began are neither changed nor removed; who asks for one gets a copy, which is the
producer's entry from then on.
"""

from collections.abc import Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.producer_state import ProducerStateEntry


class ThawingProducers(Mapping[int, "ProducerStateEntry"]):
    """By producer id. Each entry that is asked for in the meantime costs a copy; a plain dict has no such cost, and is what is there most
    of the time."""

    __slots__ = ("_changed", "_frozen", "_new")

    def __init__(self, frozen: "dict[int, ProducerStateEntry]") -> None:
        self._frozen = frozen
        self._changed: dict[int, ProducerStateEntry] = {}
        self._new = 0
        """How many of those are in the other dict not at all."""

    def __getitem__(self, producer_id: int) -> "ProducerStateEntry":
        entry = self._changed.get(producer_id)
        if entry is None:
            entry = self._changed[producer_id] = self._frozen[producer_id].copy()
        return entry

    def __setitem__(self, producer_id: int, entry: "ProducerStateEntry") -> None:
        if producer_id not in self._frozen and producer_id not in self._changed:
            self._new += 1
        self._changed[producer_id] = entry

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._changed or producer_id in self._frozen

    def __iter__(self) -> Iterator[int]:
        return iter({**self._frozen, **self._changed})

    def __len__(self) -> int:
        return len(self._frozen) + self._new

    def values(self) -> "ValuesView[ProducerStateEntry]":
        """To be read only: most of them are those of the snapshot."""
        return {**self._frozen, **self._changed}.values()

    def thawed(self) -> "dict[int, ProducerStateEntry]":
        """All of them as they are now, in the order in which they were first seen. The snapshot is written: this is of no use any more."""
        self._frozen.update(self._changed)
        return self._frozen
