"""Merges batches of records with equal states into a list of such batches, which is in order, without overlaps and as short as possible.

Where batches overlap, the record with more deliveries is right. Of those with equally many, the later state is right: 0 available, 2
acknowledged, 4 archived. So the result does not depend on the order of the batches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter

from ottla.coordination.shares.record_states import StateBatch

_LAST = attrgetter("last")


def merge(batches: list[StateBatch], new: Iterable[StateBatch]) -> None:
    """Merge new batches into a list in place. Each costs a search, and a visit of the batches that it overlaps."""
    for batch in new:
        _merge_one(batches, batch)


def prune(batches: list[StateBatch], start: int) -> None:
    """Remove what is below `start` from a list of batches in place."""
    at = bisect_left(batches, start, key=_LAST)
    del batches[:at]
    if batches and batches[0].first < start:
        batches[0] = batches[0]._replace(first=start)


def _merge_one(batches: list[StateBatch], new: StateBatch) -> None:
    if not batches or batches[-1].last < new.first:  # nearly all: the search is the larger part of the time
        _append(batches, new)
        return
    begin = bisect_left(batches, new.first - 1, key=_LAST)  # a batch that ends just before may be continued
    end = begin
    merged: list[StateBatch] = []
    at = new.first
    while end < len(batches) and batches[end].first <= new.last + 1:
        old = batches[end]
        end += 1
        if at < old.first:
            _append(merged, new._replace(first=at, last=min(old.first - 1, new.last)))
        elif old.first < new.first:
            _append(merged, old._replace(last=min(old.last, new.first - 1)))
        first, last = max(old.first, new.first), min(old.last, new.last)
        if first <= last:
            winner = max(old, new, key=_priority)
            _append(merged, winner._replace(first=first, last=last))
        if old.last > new.last:
            _append(merged, old._replace(first=max(old.first, new.last + 1)))
        at = max(at, old.last + 1)
    if at <= new.last:
        _append(merged, new._replace(first=at))
    batches[begin:end] = merged


def _append(batches: list[StateBatch], batch: StateBatch) -> None:
    if batches:
        first, last, state, count = batches[-1]
        if last + 1 == batch.first and count == batch.delivery_count and state == batch.state:
            batches[-1] = StateBatch(first, batch.last, state, count)
            return
    batches.append(batch)


def _priority(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.state
