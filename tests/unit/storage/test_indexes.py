"""The three indexes of a segment: what is found, what stands in the file, what is cut."""

import struct
import tracemalloc
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.storage.errors import CorruptIndex
from ottla.storage.segment.offset_index import OffsetIndex
from ottla.storage.segment.time_index import TimeIndex
from ottla.storage.segment.transaction_bounds import ENTRY_SIZE
from ottla.storage.segment.transaction_index import ALL, AbortedTransaction, TransactionIndex, TransactionSearch, steps_of
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem

PATH = "/d/index"


def _filesystem() -> MemoryFileSystem:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("/d")
    return filesystem


def _offset_index(filesystem: MemoryFileSystem, base_offset: int = 0, max_size: int = 1 << 20) -> OffsetIndex:
    index = OffsetIndex(filesystem, PATH, base_offset, max_size, 0)
    index.reset()
    return index


def _time_index(filesystem: MemoryFileSystem, base_offset: int = 0, max_size: int = 1 << 20) -> TimeIndex:
    index = TimeIndex(filesystem, PATH, base_offset, max_size, 0)
    index.reset()
    return index


def test_an_offset_entry_is_eight_bytes_relative_to_the_base() -> None:
    filesystem = _filesystem()
    index = _offset_index(filesystem, base_offset=100)
    index.append(107, 4096)
    index.append(110, 8192)
    index.trim()
    assert filesystem.read_file(PATH) == struct.pack(">iiii", 7, 4096, 10, 8192)


def test_a_time_entry_is_twelve_bytes_relative_to_the_base() -> None:
    filesystem = _filesystem()
    index = _time_index(filesystem, base_offset=100)
    index.maybe_append(1_700_000_000_000, 107)
    index.trim()
    assert filesystem.read_file(PATH) == struct.pack(">qi", 1_700_000_000_000, 7)


def test_an_index_is_preallocated_to_whole_entries_and_trimmed_to_those_it_has() -> None:
    filesystem = _filesystem()
    index = _time_index(filesystem, max_size=100)
    assert filesystem.size(PATH) == 96
    assert index.max_entries == 8
    index.maybe_append(5, 1)
    index.trim()
    assert filesystem.size(PATH) == 12
    index.make_room()
    assert filesystem.read_file(PATH) == struct.pack(">qi", 5, 1) + bytes(84)


def test_an_offset_index_is_full_with_its_last_entry_and_a_time_index_one_before() -> None:
    offsets = _offset_index(_filesystem(), max_size=24)
    times = _time_index(_filesystem(), max_size=36)
    for n in range(1, 4):
        assert not offsets.is_full()
        offsets.append(n, n)
        times.maybe_append(n, n)
        assert times.is_full() == (n >= 2)
    assert offsets.is_full()


def test_an_index_that_is_opened_with_a_smaller_size_keeps_its_entries_and_is_full() -> None:
    filesystem = _filesystem()
    index = _offset_index(filesystem)
    for n in range(1, 6):
        index.append(n, n)
    index.trim()
    again = OffsetIndex(filesystem, PATH, 0, 24, filesystem.size(PATH))
    again.make_room()
    assert again.all_entries() == [(n, n) for n in range(1, 6)]
    assert again.is_full()


def test_offsets_that_do_not_grow_are_refused() -> None:
    index = _offset_index(_filesystem())
    index.append(5, 0)
    with pytest.raises(CorruptIndex, match="offset 5 appended after 5"):
        index.append(5, 10)


def test_a_time_index_takes_only_timestamps_that_grow() -> None:
    index = _time_index(_filesystem())
    index.maybe_append(10, 1)
    index.maybe_append(10, 2)
    index.maybe_append(9, 3)
    assert index.all_entries() == [(10, 1)]
    with pytest.raises(CorruptIndex):
        index.maybe_append(11, 0)


def test_a_lookup_below_all_entries_begins_at_the_base() -> None:
    index = _offset_index(_filesystem(), base_offset=100)
    assert index.lookup(100) == (100, 0)
    index.append(105, 77)
    assert index.lookup(104) == (100, 0)
    assert index.lookup(105) == (105, 77)
    assert index.lookup(2**40) == (105, 77)


def test_the_file_of_a_trimmed_index_is_taken_to_be_full_of_entries() -> None:
    filesystem = _filesystem()
    index = _offset_index(filesystem, base_offset=10)
    index.append(12, 100)
    index.append(19, 200)
    index.trim()
    again = OffsetIndex(filesystem, PATH, 10, 1 << 20, filesystem.size(PATH))
    assert again.all_entries() == [(12, 100), (19, 200)]
    assert again.last_offset == 19
    again.make_room()
    again.append(25, 300)
    assert again.lookup(30) == (25, 300)


def test_what_was_written_last_is_found_without_a_look_at_the_rest() -> None:
    filesystem = _filesystem()
    index = _offset_index(filesystem)
    for offset in range(1, 3001):
        index.append(offset, offset * 3)
    index.write_out()
    index.trim()
    file = filesystem.open(index.path)
    file.pwrite(b"\x7f" * (1900 * 8), 0)
    assert index.lookup(2500) == (2500, 7500)
    assert index.lookup(1950) == (0, 0)  # what stands there now is believed


@settings(max_examples=60, deadline=None)
@given(
    gaps=st.lists(st.integers(1, 5), min_size=0, max_size=3000),
    cuts=st.lists(st.integers(0, 12000), max_size=3),
    asked=st.lists(st.integers(-5, 12000), min_size=1, max_size=40),
    written_at=st.integers(1, 3000),
)
def test_lookups_agree_with_a_list(gaps: list[int], cuts: list[int], asked: list[int], written_at: int) -> None:
    index = _offset_index(_filesystem(), base_offset=1000)
    offset, model = 1000, []
    for n, gap in enumerate(gaps):
        offset += gap
        index.append(offset, offset * 3)
        model.append(offset)
        if n % written_at == 0:
            index.write_out()
    for cut in [None, *cuts]:
        if cut is not None:
            index.truncate_to(1000 + cut)
            model = [each for each in model if each < 1000 + cut]
        assert index.entries == len(model)
        for each in asked:
            target = 1000 + each
            at = bisect_right(model, target)
            expected = (model[at - 1], model[at - 1] * 3) if at else (1000, 0)
            assert index.lookup(target) == expected
            assert index.lookup_position(target * 3) == expected
            following = (model[at], model[at] * 3) if at < len(model) else (-1, -1)
            assert index.bracket(target) == (expected if at else (1000, 0)) + following
    if model:
        index.append(model[-1] + 1, 999_999)
        assert index.lookup(2**31) == (model[-1] + 1, 999_999)


@settings(max_examples=40, deadline=None)
@given(entries=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=1500), asked=st.lists(st.integers(-2, 5000), max_size=20))
def test_timestamps_are_found_as_in_a_list(entries: list[tuple[int, int]], asked: list[int]) -> None:
    filesystem = _filesystem()
    index = _time_index(filesystem)
    timestamp = offset = 0
    model: list[tuple[int, int]] = []
    for later, further in entries:
        timestamp, offset = timestamp + later, offset + further
        index.maybe_append(timestamp, offset)
        if timestamp > (model[-1][0] if model else -1):
            model.append((timestamp, offset))
    assert index.all_entries() == model
    for target in asked:
        assert index.lookup(target) == next((entry for entry in reversed(model) if entry[0] <= target), (-1, 0))
    index.truncate_to(offset // 2)
    assert index.all_entries() == [entry for entry in model if entry[1] < offset // 2]


def test_entries_cut_off_are_not_in_the_file_any_more() -> None:
    filesystem = _filesystem()
    index = _offset_index(filesystem, max_size=64)
    for n in range(1, 6):
        index.append(n, n)
    index.write_out()
    index.truncate_to(3)
    assert filesystem.read_file(PATH) == struct.pack(">iiii", 1, 1, 2, 2) + bytes(48)


def test_entries_that_cannot_be_written_are_still_there_and_can_be_taken_back() -> None:
    inner = _filesystem()
    faulty = FaultyFileSystem(inner)
    index = OffsetIndex(faulty, PATH, 0, 1 << 20, 0)
    index.reset()
    for n in range(511):
        index.append(n, n)
    faulty.fail_at = faulty.calls + 1
    with pytest.raises(OSError):
        index.append(511, 511)
    index.truncate_to_entries(511)
    faulty.fail_at = None
    index.append(600, 600)
    index.write_out()
    assert index.lookup(599) == (510, 510)
    assert index.lookup(600) == (600, 600)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\0" * 12, "12 bytes are not a multiple of 8"),
        (struct.pack(">ii", -3, 10), "last entry is offset 97"),
        (struct.pack(">ii", 3, 5000), "at 5000 in a log file of 1000 bytes"),
        (struct.pack(">ii", 3, -1), "at -1 in a log file"),
    ],
)
def test_an_offset_index_that_cannot_be_right_is_told(content: bytes, reason: str) -> None:
    filesystem = _filesystem()
    filesystem.open(PATH, create=True).write(content)
    with pytest.raises(CorruptIndex, match=reason):
        OffsetIndex(filesystem, PATH, 100, 1 << 20, len(content)).check(1000)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\0" * 13, "not a multiple of 12"),
        (struct.pack(">qiqi", 500, 1, 400, 2), "last timestamp 400 is below the first one, 500"),
        (struct.pack(">qi", 500, -1), "last offset 99 is below the base offset 100"),
    ],
)
def test_a_time_index_that_cannot_be_right_is_told(content: bytes, reason: str) -> None:
    filesystem = _filesystem()
    filesystem.open(PATH, create=True).write(content)
    with pytest.raises(CorruptIndex, match=reason):
        TimeIndex(filesystem, PATH, 100, 1 << 20, len(content)).check()


def _transactions(filesystem: MemoryFileSystem, *transactions: AbortedTransaction) -> TransactionIndex:
    index = TransactionIndex(filesystem, PATH, 0, None)
    for transaction in transactions:
        index.append(transaction)
    return index


def test_a_transaction_index_has_no_file_before_its_first_entry_of_34_bytes() -> None:
    filesystem = _filesystem()
    index = _transactions(filesystem)
    index.reset()
    assert not filesystem.exists(PATH)
    index.append(AbortedTransaction(7, 10, 20, 21))
    assert filesystem.read_file(PATH) == struct.pack(">hqqqq", 0, 7, 10, 20, 21)


def test_aborted_transactions_are_collected_up_to_the_one_that_makes_later_ones_needless() -> None:
    index = _transactions(
        _filesystem(), AbortedTransaction(1, 0, 5, 6), AbortedTransaction(2, 4, 10, 11), AbortedTransaction(3, 12, 20, 21)
    )
    assert index.collect(6, 12) == ([(2, 4, 10, 11)], True)
    assert index.collect(0, 4) == ([(1, 0, 5, 6)], True)
    assert index.collect(0, 30) == ([(1, 0, 5, 6), (2, 4, 10, 11), (3, 12, 20, 21)], False)


def test_markers_must_follow_each_other() -> None:
    index = _transactions(_filesystem(), AbortedTransaction(1, 0, 5, 6))
    with pytest.raises(CorruptIndex):
        index.append(AbortedTransaction(2, 1, 5, 6))


def test_transactions_are_cut_by_their_markers() -> None:
    filesystem = _filesystem()
    index = _transactions(filesystem, AbortedTransaction(1, 0, 5, 6), AbortedTransaction(2, 4, 10, 11))
    index.truncate_to(11)
    assert len(index.entries()) == 2
    index.truncate_to(10)
    assert index.entries() == [(1, 0, 5, 6)]
    index.append(AbortedTransaction(9, 6, 8, 9))
    assert filesystem.size(PATH) == 68


def test_a_transaction_index_that_cannot_be_right_is_told() -> None:
    filesystem = _filesystem()
    filesystem.open(PATH, create=True).write(struct.pack(">hqqqq", 1, 1, 0, 5, 6))
    with pytest.raises(CorruptIndex, match="unknown version 1"):
        TransactionIndex(filesystem, PATH, 0, 34).check()
    filesystem.open(PATH).write(struct.pack(">hqqqq", 0, 1, 0, 5, 6))
    with pytest.raises(CorruptIndex, match="below the base offset 100"):
        TransactionIndex(filesystem, PATH, 100, 34).check()
    for last_offset in (5, 4):
        filesystem.open(PATH).write(struct.pack(">hqqqq", 0, 1, 0, 5, 6) + struct.pack(">hqqqq", 0, 2, 1, last_offset, 6))
        with pytest.raises(CorruptIndex, match=f"last offset {last_offset} follows 5"):
            TransactionIndex(filesystem, PATH, 0, 68).check()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 12)), max_size=12),
    st.integers(0, 60),
    st.integers(1, 20),
)
def test_the_aborted_transactions_of_a_range_are_those_that_overlap_it(made: list[tuple[int, int]], fetch_offset: int, length: int) -> None:
    index = TransactionIndex(_filesystem(), PATH, 0, None)
    last_offset = 0
    stable = 0
    transactions = []
    for step, length_of_transaction in made:
        last_offset += step
        first_offset = max(0, last_offset - 1 - length_of_transaction)
        stable = max(stable, first_offset if step == 1 else last_offset + 1)
        transactions.append(AbortedTransaction(7, first_offset, last_offset, stable))
        index.append(transactions[-1])
    upper = fetch_offset + length
    found, is_complete = index.collect(fetch_offset, upper)
    seen = []
    for each in transactions:  # as Apache Kafka looks for them: through all, from the first
        if each.last_offset >= fetch_offset and each.first_offset < upper:
            seen.append(each)
        if each.last_stable_offset >= upper:
            break
    assert found == seen
    assert is_complete == any(each.last_stable_offset >= upper for each in transactions)


def test_a_read_at_the_end_of_many_aborted_transactions_looks_at_few() -> None:
    index = TransactionIndex(_filesystem(), PATH, 0, None)
    for at in range(10_000):
        index.add(AbortedTransaction(7, 2 * at, 2 * at + 1, 2 * at + 2))
    index.write_out()
    data = index._filesystem.read_file(PATH)
    reads: list[int] = []

    def read(slot: int, count: int) -> bytes:
        reads.append(count)
        return data[slot * ENTRY_SIZE : (slot + count) * ENTRY_SIZE]

    found = TransactionSearch().collect(read, 10_000, 19_990, 19_992, ALL, steps_of(None, index._filesystem, PATH))
    assert found == index.collect(19_990, 19_992) == ([(7, 19_990, 19_991, 19_992)], True)
    assert len(reads) < 20
    assert sum(reads) < 100
    assert index.collect(0, 20_000, 3) == ([(7, 0, 1, 2), (7, 2, 3, 4), (7, 4, 5, 6)], False)


def test_a_transaction_index_takes_the_memory_of_its_bytes() -> None:
    filesystem = _filesystem()
    _transactions(filesystem, *(AbortedTransaction(2**40, 2**40 + at, 2**40 + at, 2**40 + at + 1) for at in range(10_000)))
    index = TransactionIndex(filesystem, PATH, 0, 340_000)
    tracemalloc.start()
    try:
        index.collect(2**40 + 9_999, 2**40 + 10_000)
        assert tracemalloc.get_traced_memory()[0] < 500_000, "as objects the entries take 2 MB"
    finally:
        tracemalloc.stop()
