"""Searches for aborted transactions where one was open for long: the transactions that were aborted meanwhile are passed over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.storage.segment import transaction_index
from ottla.storage.segment.cold_lookups import LongWalk
from ottla.storage.segment.transaction_bounds import BLOCK_ENTRIES, GROUP_ENTRIES, Bounds, bounds_of
from ottla.storage.segment.transaction_index import ALL, INLINE_STEPS, AbortedTransaction, TransactionIndex, TransactionSearch, Walk
from tests.support.filesystems import MemoryFileSystem

PATH = "/d/index"


def _index(*transactions: AbortedTransaction) -> TransactionIndex:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("/d")
    index = TransactionIndex(filesystem, PATH, 0, None)
    for each in transactions:
        index.add(each)
    index.write_out()
    return index


def _during_a_long_one(count: int) -> list[AbortedTransaction]:
    """Transactions of two records each, while one from offset 0 on is open. It ends after them."""
    short = [AbortedTransaction(7, at, at + 1, 0) for at in range(1, 2 * count, 2)]
    return [*short, AbortedTransaction(8, 0, 2 * count + 1, 2 * count + 2)]


def _linear(transactions: list[AbortedTransaction], fetch_offset: int, upper: int, at_most: int) -> tuple[list[AbortedTransaction], bool]:
    found = []
    for each in transactions:
        if each.last_offset < fetch_offset:
            continue
        if each.first_offset < upper:
            found.append(each)
        if each.last_stable_offset >= upper:
            return found, True
        if len(found) >= at_most:
            break
    return found, False


def _count_bounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the groups whose bounds are computed from now on."""
    computed: list[int] = []

    def counted(entries: bytearray) -> Bounds:
        computed.append(len(entries))
        return bounds_of(entries)

    monkeypatch.setattr(transaction_index, "bounds_of", counted)
    return computed


@st.composite
def _histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Aborted transactions of up to five producers. Some are open for long; some that end are committed, and have no entry."""
    steps = draw(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=80))
    begun: dict[int, int] = {}
    made = []
    for offset, (producer_id, is_aborted) in enumerate(steps):
        if producer_id not in begun:
            begun[producer_id] = offset
            continue
        first_offset = begun.pop(producer_id)
        if is_aborted:
            made.append(AbortedTransaction(producer_id, first_offset, offset, min(begun.values(), default=offset + 1)))
    return made


@settings(max_examples=300, deadline=None)
@given(
    _histories(),
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 80), st.one_of(st.just(ALL), st.integers(1, 9))), min_size=1, max_size=6),
    st.integers(0, 40),
)
def test_a_search_finds_what_a_walk_through_all_entries_finds(
    transactions: list[AbortedTransaction], searches: list[tuple[int, int, int]], kept: int
) -> None:
    """Also after appends and after a truncation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_index, "BLOCK_ENTRIES", 2)
        patch.setattr(transaction_index, "GROUP_ENTRIES", 8)
        patch.setattr("ottla.storage.segment.transaction_bounds.BLOCK_ENTRIES", 2)
        index = _index(*transactions[:kept])
        present = transactions[:kept]
        for fetch_offset, length, at_most in searches:
            upper = fetch_offset + length
            assert index.collect(fetch_offset, upper, at_most) == _linear(present, fetch_offset, upper, at_most)
        for each in transactions[kept:]:
            index.append(each)
        for fetch_offset, length, at_most in searches:
            upper = fetch_offset + length
            assert index.collect(fetch_offset, upper, at_most) == _linear(transactions, fetch_offset, upper, at_most)
        cut = searches[0][0]
        index.truncate_to(cut)
        present = [each for each in transactions if each.last_offset < cut]
        for fetch_offset, length, at_most in searches:
            upper = fetch_offset + length
            assert index.collect(fetch_offset, upper, at_most) == _linear(present, fetch_offset, upper, at_most)


def test_a_second_search_within_a_long_transaction_reads_few_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = _during_a_long_one(20 * GROUP_ENTRIES)
    index = _index(*transactions)
    expected = [transactions[0], transactions[1], transactions[-1]]
    assert index.collect(1, 5) == (expected, True)
    spans: list[int] = []
    searched = TransactionSearch._spans

    def counted(of: TransactionSearch, *search: Any) -> Iterator[tuple[int, int]]:
        for begin, end in searched(of, *search):
            spans.append(end - begin)
            yield begin, end

    monkeypatch.setattr(TransactionSearch, "_spans", counted)
    monkeypatch.setattr(transaction_index, "bounds_of", lambda _: pytest.fail("the bounds are kept"))
    assert index.collect(1, 5) == (expected, True)
    assert sum(spans) <= 3 * BLOCK_ENTRIES


def test_the_first_search_within_a_long_transaction_takes_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = _during_a_long_one(3 * INLINE_STEPS * GROUP_ENTRIES)
    index = _index(*transactions)
    computed = _count_bounds(monkeypatch)
    turns = 0
    while True:
        computed.clear()
        try:
            found = index.collect(1, 5, ALL, Walk())
            break
        except LongWalk as cold:
            turns += 1
            assert len(computed) <= INLINE_STEPS
            index.append(AbortedTransaction(9, 10**9 + turns, 10**9 + turns, 10**9))  # an error that is kept forbids no append
            cold.warm()
    assert found == ([transactions[0], transactions[1], transactions[-1]], True)
    assert turns == 3
    index.release()
    with pytest.raises(LongWalk):
        index.collect(1, 5, ALL, Walk())


def test_a_reader_at_the_end_of_the_log_computes_no_bounds_after_each_append(monkeypatch: pytest.MonkeyPatch) -> None:
    index = _index()
    computed = _count_bounds(monkeypatch)
    for at in range(2 * GROUP_ENTRIES):
        index.add(AbortedTransaction(7, 2 * at, 2 * at + 1, 2 * at + 2))
        assert index.collect(2 * at, 2 * at + 2)[1]
    assert len(computed) == 2 * GROUP_ENTRIES // BLOCK_ENTRIES
