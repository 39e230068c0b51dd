"""Which segments are copied to the remote store, and which are removed from it."""

import asyncio
from collections.abc import Collection, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.remote.choice import (
    FOREIGN_COPY_LIMIT_MS,
    Expired,
    Retention,
    choose_expired,
    is_abandoned,
    is_unreferenced,
    segments_to_copy,
    survey,
)
from ottla.storage.remote.entries import TO_COPY_AGAIN, SegmentEntry, SegmentId, SegmentState
from ottla.storage.remote.lineage import LogBounds, some_ranges
from tests.support.remote_segments import an_entry

STARTED, FINISHED, DELETING, _ = SegmentState
FOUR = [an_entry(at, at + 9, size=100, max_timestamp_ms=1000 + at) for at in range(0, 40, 10)]
WHOLE = LogBounds(0, 50, [(0, 0)], 0)
KEEP_ALL = Retention(-1, -1, 10_000)


def expired(
    entries: Sequence[SegmentEntry],
    retention: Retention = KEEP_ALL,
    *,
    log: LogBounds = WHOLE,
    being_copied: Collection[SegmentId] = (),
    newer_here: Collection[tuple[int, int]] = (),
) -> Expired:
    """What is chosen. `newer_here` are the ranges of which this broker has records that are not due."""

    async def has_newer(first: int, last: int, oldest_ms: int) -> bool:
        assert oldest_ms == retention.now_ms - retention.retention_ms
        return (first, last) in newer_here

    def entries_of(epoch: int) -> list[SegmentEntry]:
        return sorted((entry for entry in entries if epoch in entry.leader_epochs), key=lambda entry: entry.start_offset)

    async def choose() -> Expired:
        found = await survey(log, log.log_end_offset, entries_of)
        return await choose_expired(log, retention, found.bytes, entries_of, being_copied, has_newer)

    return asyncio.run(choose())


def starts(entries: Iterable[SegmentEntry]) -> list[int]:
    return [entry.start_offset for entry in entries]


# base offsets, first offset to copy, last stable offset, chosen
TO_COPY = [
    pytest.param([5, 10, 15], 5, 20, [(5, 10), (10, 15)], id="not the active segment"),
    pytest.param([5, 10, 15, 20], 5, 15, [(5, 10), (10, 15)], id="not beyond the last stable offset"),
    pytest.param([5, 10, 15, 20], 5, 14, [(5, 10)], id="nor a segment that contains it"),
    pytest.param([5, 10, 15, 20], 10, 30, [(10, 15), (15, 20)], id="not what is copied"),
    pytest.param([5, 10, 15, 20], 12, 30, [(10, 15), (15, 20)], id="whole segments"),
    pytest.param([5, 10, 15, 20], 0, 30, [(5, 10), (10, 15), (15, 20)], id="from the first one"),
    pytest.param([5], 0, 30, [], id="one segment"),
]


@pytest.mark.parametrize(("bases", "first_offset", "last_stable_offset", "chosen"), TO_COPY)
def test_closed_segments_below_the_last_stable_offset_are_copied(bases, first_offset, last_stable_offset, chosen) -> None:
    assert segments_to_copy(bases, first_offset, last_stable_offset) == chosen


# retention.ms, retention.bytes, bytes that are only local, first offsets of the removed segments, log start offset
RETENTIONS = [
    pytest.param(-1, -1, 1000, [], None, id="no limit"),
    pytest.param(8990, -1, 0, [0, 10], 20, id="the newest record of the second is just old enough"),
    pytest.param(8991, -1, 0, [0], 10, id="and here it is not"),
    pytest.param(0, -1, 0, [0, 10, 20, 30], 40, id="all are older"),
    pytest.param(-1, 400, 0, [], None, id="exactly as large as allowed"),
    pytest.param(-1, 350, 0, [], None, id="less than a segment too large"),
    pytest.param(-1, 300, 0, [0], 10, id="a segment too large"),
    pytest.param(-1, 350, 150, [0, 10], 20, id="local bytes count"),
    pytest.param(8990, 100, 0, [0, 10, 20], 30, id="both limits, in the order of the segments"),
]


@pytest.mark.parametrize(("retention_ms", "retention_bytes", "only_local", "removed", "log_start"), RETENTIONS)
def test_retention_removes_the_oldest_segments(retention_ms, retention_bytes, only_local, removed, log_start) -> None:
    log = LogBounds(0, 50, [(0, 0)], only_local)
    chosen = expired(FOUR, Retention(retention_ms, retention_bytes, 10_000), log=log)
    assert (starts(chosen.segments), chosen.log_start_offset) == (removed, log_start)


def test_segments_below_the_log_start_offset_are_removed_although_their_epochs_are_no_longer_known() -> None:
    entries = [an_entry(0, 9, {0: 0}), an_entry(10, 19, {0: 10, 2: 15}), an_entry(20, 29, {2: 20})]
    chosen = expired(entries, log=LogBounds(20, 50, [(2, 20)], 0))
    assert starts(chosen.segments) == [10]  # the first is in no epoch of the log any more
    assert chosen.log_start_offset is None
    assert [is_unreferenced(entry, 2) for entry in entries] == [True, False, False]


def test_a_segment_that_the_log_start_offset_cuts_stays() -> None:
    assert expired(FOUR, log=LogBounds(15, 50, [(0, 15)], 0)) == Expired([FOUR[0]], None)


def test_nothing_behind_a_segment_that_is_being_copied_is_removed() -> None:
    assert starts(expired(FOUR, Retention(0, -1, 10_000), being_copied={FOUR[1].id}).segments) == [0]


def test_segments_outside_the_lineage_are_passed_over() -> None:
    foreign = an_entry(5, 30, {0: 5, 1: 20}, uuid=99, max_timestamp_ms=9999)
    assert starts(expired([foreign, *FOUR], Retention(8990, -1, 10_000)).segments) == [0, 10]


# records from 10 to 19 that this broker has, entry of them that is not finished, retention.bytes, first offsets of the removed segments
UNCOPIED = [
    pytest.param([], None, -1, [0, 20, 30], id="lost"),
    pytest.param([(10, 19)], None, -1, [0], id="here, and newer"),
    pytest.param([], an_entry(10, 19, state=STARTED, max_timestamp_ms=9999), -1, [0], id="in a copy that may be finished yet"),
    pytest.param([], an_entry(10, 19, state=DELETING, max_timestamp_ms=9999, broker_id=TO_COPY_AGAIN), -1, [0], id="to be copied again"),
    pytest.param([], an_entry(10, 19, state=DELETING, max_timestamp_ms=9999), -1, [0, 20, 30], id="removed"),
    pytest.param([], an_entry(10, 19, state=STARTED), -1, [0, 20, 30], id="as old"),
    pytest.param([], an_entry(10, 19, {0: 10, 1: 15}, state=STARTED, max_timestamp_ms=9999), -1, [0, 20, 30], id="of a lost history"),
    pytest.param([], an_entry(40, 44, state=STARTED, max_timestamp_ms=9999), -1, [0, 20, 30], id="behind"),
    pytest.param([(10, 19)], None, 100, [0, 20], id="newer than those by which the log is too large"),
]


@pytest.mark.parametrize(("here", "unfinished", "retention_bytes", "removed"), UNCOPIED)
def test_retention_by_time_does_not_pass_newer_records_that_no_copy_has(here, unfinished, retention_bytes, removed) -> None:
    entries = [FOUR[0], *FOUR[2:], *([] if unfinished is None else [unfinished])]
    chosen = expired(entries, Retention(10 if retention_bytes < 0 else 100_000, retention_bytes, 10_000), newer_here=here)
    assert (starts(chosen.segments), chosen.log_start_offset) == (removed, removed[-1] + 10)


def test_retention_by_time_does_not_pass_newer_records_at_the_start_of_the_log() -> None:
    retention = Retention(10, -1, 10_000)
    assert expired(FOUR[1:], retention, log=LogBounds(5, 50, [(0, 5)]), newer_here=[(5, 9)]) == Expired([], None)
    assert starts(expired(FOUR[1:], retention, log=LogBounds(5, 50, [(0, 5)])).segments) == [10, 20, 30]


def test_copies_that_are_not_finished_do_not_count() -> None:
    dangling = an_entry(0, 9, uuid=99, state=STARTED)
    deleting = an_entry(0, 9, uuid=98, state=DELETING)
    assert starts(expired([dangling, *FOUR], Retention(-1, 300, 10_000)).segments) == [0]
    assert expired([deleting, *FOUR], Retention(-1, 300, 10_000)).log_start_offset == 10  # its bytes go, too


def test_a_segment_without_timestamps_stays_if_time_does_not_matter() -> None:
    assert not expired([an_entry(0, 9, max_timestamp_ms=-1)]).segments


def test_each_segment_is_chosen_once_although_several_epochs_list_it() -> None:
    entries = [an_entry(0, 19, {0: 0, 1: 10})]
    chosen = expired(entries, Retention(-1, 0, 10_000), log=LogBounds(0, 50, [(0, 0), (1, 10)], 0))
    assert chosen == Expired(entries, 20)


def test_copies_are_abandoned_when_their_broker_no_longer_makes_them() -> None:
    mine, other = an_entry(0, 9, state=STARTED), an_entry(20, 29, state=STARTED, broker_id=2)
    assert is_abandoned(mine, 1, 0)
    assert not is_abandoned(other, 1, FOREIGN_COPY_LIMIT_MS)
    assert is_abandoned(other, 1, FOREIGN_COPY_LIMIT_MS + 1)
    assert is_abandoned(an_entry(0, 9, state=DELETING, broker_id=2), 1, 0)
    assert not is_abandoned(an_entry(0, 9, state=FINISHED), 1, 0)


def test_records_that_two_copies_have_count_once() -> None:
    again = an_entry(5, 14, uuid=99, size=100)
    assert not expired([FOUR[0], again, *FOUR[1:]], Retention(-1, 400, 10_000)).segments
    assert starts(expired([FOUR[0], again, *FOUR[1:]], Retention(-1, 350, 10_000)).segments) == []
    assert starts(expired([FOUR[0], again, *FOUR[1:]], Retention(-1, 300, 10_000)).segments) == [0]


@given(st.lists(st.integers(0, 50), max_size=10), st.integers(-1, 600), st.integers(-1, 600), st.integers(0, 12_000))
def test_retention_by_size_removes_no_more_than_the_excess(sizes, retention_bytes, retention_ms, now_ms) -> None:
    entries = [an_entry(at * 10, at * 10 + 9, size=size, max_timestamp_ms=at * 1000) for at, size in enumerate(sizes)]
    log = LogBounds(0, 1000, [(0, 0)], 0)
    chosen = expired(entries, Retention(retention_ms, retention_bytes, now_ms), log=log)
    removed = chosen.segments
    assert removed == entries[: len(removed)]  # from the oldest on, without gaps
    assert chosen.log_start_offset == (removed[-1].end_offset + 1 if removed else None)
    left = sum(entry.size for entry in entries[len(removed) :])
    old = [entry for entry in removed if retention_ms >= 0 and entry.max_timestamp_ms <= now_ms - retention_ms]
    if len(old) < len(removed):
        assert left >= retention_bytes >= 0
    if len(removed) < len(entries):
        stays = entries[len(removed)]
        assert retention_ms < 0 or stays.max_timestamp_ms > now_ms - retention_ms
        assert retention_bytes < 0 or left - stays.size < retention_bytes or left == retention_bytes


# log start, local log start, offsets of the copies, gaps
GAPS = [
    pytest.param(0, 40, [(0, 19), (20, 39)], [], id="whole"),
    pytest.param(0, 40, [(0, 9), (20, 29)], [(10, 19), (30, 39)], id="between and behind"),
    pytest.param(5, 40, [(10, 39)], [(5, 9)], id="at the start of the log"),
    pytest.param(15, 40, [(0, 9), (10, 39)], [], id="not below the start of the log"),
    pytest.param(0, 25, [(0, 9), (30, 39)], [(10, 24)], id="not what is on this broker"),
    pytest.param(0, 40, [(0, 29), (10, 14), (20, 39)], [], id="copies overlap"),
    pytest.param(40, 40, [], [], id="all is on this broker"),
]


@pytest.mark.parametrize(("log_start", "local_start", "copied", "gaps"), GAPS)
def test_a_survey_finds_the_offsets_that_are_nowhere(log_start, local_start, copied, gaps) -> None:
    entries = [an_entry(start, end, uuid=number) for number, (start, end) in enumerate(copied)]
    found = asyncio.run(survey(LogBounds(log_start, 50, [(0, log_start)]), local_start, lambda _: entries))
    assert found.gaps == gaps


def test_a_survey_counts_only_finished_copies_of_the_lineage() -> None:
    entries = [an_entry(0, 9), an_entry(10, 19, state=STARTED), an_entry(20, 29, {0: 20, 1: 25}), an_entry(30, 39, state=DELETING)]
    found = asyncio.run(survey(WHOLE, 40, lambda _: entries))
    assert found.gaps == [(10, 39)]


def test_ranges_are_named_up_to_ten() -> None:
    assert some_ranges([(1, 2), (5, 5)]) == "1 to 2, 5 to 5"
    assert some_ranges([(at, at) for at in range(12)]).endswith("9 to 9 and 2 more ranges")
