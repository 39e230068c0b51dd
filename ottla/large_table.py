"""Maps keys to values in several dicts, so that no single operation on a million entries takes long.

A dict that grows copies all of its entries at once, and a dict that is deleted frees them at once. A small table is one dict, in the order
of insertion. A large table has PARTS dicts, and iterates over one after the other. Its owners are the coordinators, their loaders, and the
caches of remote segments.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Final, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

SPLIT_AT: Final = 512
"""Entries from which on the table has several parts: these are moved once, in 0.04 ms. Fewer parts would not need less memory."""

PARTS: Final = 64
"""Number of dicts of a large table: of a million entries each has 16,000, which are copied within a millisecond when it grows."""

_MASK: Final = PARTS - 1
_SHIFT: Final = 48
"""The part is chosen by high bits of the hash. By the low bits a dict chooses the slot, so they have to differ within a part."""


class Parts:
    """The entries of a table, of any type. A compiled class cannot be generic, so `LargeTable` adds the types."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[dict[Any, Any]] = [{}]

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of the key, or the default."""
        return self._part(key).get(key, default)

    def _part(self, key: Any) -> dict[Any, Any]:
        parts = self._parts
        return parts[0] if len(parts) == 1 else parts[hash(key) >> _SHIFT & _MASK]

    def __getitem__(self, key: Any) -> Any:
        return self._part(key)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        parts = self._parts
        if len(parts) > 1:
            parts[hash(key) >> _SHIFT & _MASK][key] = value
            return
        parts[0][key] = value
        if len(parts[0]) > SPLIT_AT:
            self._split()

    def __delitem__(self, key: Any) -> None:
        del self._part(key)[key]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[Any]:
        for part in self._parts:
            yield from part

    def each(self) -> Iterator[Any]:
        """The values, while others may change the table: those of a part are the values at the time when the part comes up."""
        for part in self._parts:
            yield from list(part.values())

    def keys_and_values(self) -> Iterator[tuple[Any, Any]]:
        """The entries, as by `each`."""
        for part in self._parts:
            yield from list(part.items())

    def drain(self) -> Iterator[tuple[Any, Any]]:
        """The entries, each taken out when it comes up. Nothing is put in meanwhile."""
        for part in self._parts:
            for key in list(part):
                yield key, part.pop(key)
            part.clear()  # gives the empty table back

    def _split(self) -> None:
        small = self._parts[0]
        parts: list[dict[Any, Any]] = [{} for _ in range(PARTS)]
        self._parts = parts
        for key, value in small.items():
            parts[hash(key) >> _SHIFT & _MASK][key] = value


class LargeTable(Parts, MutableMapping[Key, Value]):
    """See the module."""

    __slots__ = ()
