"""Chooses the partition of a record: by the key as Java's default partitioner does, without a key one partition per
batch (KIP-480)."""

from collections.abc import Callable, Sequence

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Java's murmur2 as an unsigned 32-bit number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition that Java's producer chooses for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartition:
    """The partition of records without a key: it changes with each batch, among partitions with a leader."""

    __slots__ = ("_choose", "_current")

    def __init__(self, choose: Callable[[Sequence[int]], int]) -> None:
        """`choose` picks one at random."""
        self._choose = choose
        self._current: int | None = None

    def current(self, available: Sequence[int]) -> int:
        """The partition of the next record."""
        if self._current not in available:
            self._current = self._choose(available)
        assert self._current is not None
        return self._current

    def next_batch(self, available: Sequence[int]) -> None:
        """The batch is full: choose another partition if there is one."""
        others = [partition for partition in available if partition != self._current]
        self._current = self._choose(others or available)
