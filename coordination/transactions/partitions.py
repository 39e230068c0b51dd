"""Represents sets of partitions as topics with their indexes; an AddPartitionsToTxn may name 100,000 partitions.

Sets of int cost a tenth of sets of (topic, index). The sets of a transaction are immutable: a change replaces a set by a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias

Partitions: TypeAlias = Mapping[str, frozenset[int]]
"""Indexes by topic; no topic is without an index."""

NO_PARTITIONS: Final[Partitions] = {}

NO_INDEXES: Final[frozenset[int]] = frozenset()


def of_pairs(pairs: Iterable[tuple[str, Iterable[int]]]) -> Partitions:
    """The partitions of (topic, indexes); a topic may come more than once, or without an index."""
    found: dict[str, frozenset[int]] = {}
    for topic, indexes in pairs:
        named = frozenset(indexes)
        if named:
            found[topic] = found[topic] | named if topic in found else named
    return found


def in_parts(partitions: Partitions, size: int) -> Iterator[Partitions]:
    """The partitions in parts of at most `size`, created lazily."""
    part: dict[str, frozenset[int]] = {}
    left = size
    for topic, indexes in partitions.items():
        remaining = iter(indexes)
        while some := frozenset(islice(remaining, left)):
            part[topic] = some
            left -= len(some)
            if not left:
                yield part
                part, left = {}, size
    if part:
        yield part


def union(some: Partitions, others: Partitions) -> Partitions:
    """The partitions of both; the topics of `some` come first."""
    if not some:
        return others
    found = {**some, **others}
    for topic in some.keys() & others.keys():
        found[topic] = some[topic] | others[topic]
    return found


def difference(some: Partitions, others: Partitions) -> Partitions:
    """The partitions of `some` that are not among the others."""
    found = dict(some)
    for topic, indexes in others.items():
        known = found.get(topic)
        if known is not None:
            left = known - indexes
            if left:
                found[topic] = left
            else:
                del found[topic]
    return found


def includes(some: Partitions, others: Partitions) -> bool:
    """Whether `some` has all of the others."""
    missing = [topic for topic, indexes in others.items() if not indexes <= some.get(topic, NO_INDEXES)]
    return not missing
