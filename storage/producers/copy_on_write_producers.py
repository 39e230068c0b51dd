"""Shows a log's producers as a copy-on-write view while a snapshot of them is being written.

It replaces `ProducerState.producers` for that time. A second snapshot may wait for the first one; then the changes in between are frozen,
too.

Invariant: the entries present when the snapshots began are neither changed nor removed. Looking one up makes a copy, which is the
producer's entry from then on.
"""

from collections.abc import Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.storage.producers.state import ProducerStateEntry


class CopyOnWriteProducers(Mapping[int, "ProducerStateEntry"]):
    """Producers by producer id. Each entry that is looked up costs a copy. Outside of snapshots a plain dict is used, without that cost."""

    __slots__ = ("_changed", "_frozen", "_new", "_waiting")

    def __init__(self, frozen: "dict[int, ProducerStateEntry]") -> None:
        self._frozen = frozen
        self._waiting: dict[int, ProducerStateEntry] | None = None
        """Entries that had changed when the second snapshot was requested; None without one."""
        self._changed: dict[int, ProducerStateEntry] = {}
        self._new = 0
        """Number of changed or waiting entries that are not in `_frozen`."""

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
        """All entries, for reading only: most of them belong to the snapshot."""
        return self._all().values()

    def freeze_next(self) -> None:
        """Freeze the current state for a second snapshot. Replaces an earlier request for one."""
        if self._waiting is None:
            self._waiting = self._changed
        else:
            self._waiting.update(self._changed)
        self._changed = {}

    def begin_next(self) -> "dict[int, ProducerStateEntry] | None":
        """End the first snapshot. Returns the entries of the second one, which are the frozen ones from now on; None without one."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return None
        count = len(self)
        self._frozen.update(waiting)
        self._new = count - len(self._frozen)
        return self._frozen

    def merged(self) -> "dict[int, ProducerStateEntry]":
        """All entries as they are now, in the order of their creation. Ends the use of this object; no snapshot may be in progress."""
        self.begin_next()
        self._frozen.update(self._changed)
        return self._frozen

    def _all(self) -> "dict[int, ProducerStateEntry]":
        return {**self._frozen, **(self._waiting or {}), **self._changed}
