"""Which remote segments belong to a log: the cases of Apache Kafka's RemoteLogManagerTest, and histories with elections."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.remote.entries import Accepts, SegmentEntry, any_copy
from ottla.storage.remote.lineage import (
    NOTHING_COPIED,
    LogBounds,
    OffsetAndEpoch,
    epochs_between,
    first_missing,
    first_remote_offset,
    highest_copied,
    is_in_lineage,
    next_copy,
    with_records,
)
from tests.support.remote_segments import an_entry

LOG = [(0, 0), (1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (7, 70)]
AFTER_RETENTION = [(7, 51), (9, 100)]

# start, end, epochs of the segment, whether it is in the lineage of a log that ends at 90
CASES = [
    pytest.param(15, 35, {1: 15, 2: 20, 3: 30}, True, id="several epochs"),
    pytest.param(15, 19, {1: 15}, True, id="one epoch"),
    pytest.param(0, 5, {0: 0}, True, id="begins with its epoch"),
    pytest.param(70, 75, {7: 70}, True, id="the last epoch"),
    pytest.param(15, 29, {1: 15, 2: 20}, True, id="ends with its epoch"),
    pytest.param(55, 85, {5: 55, 6: 60, 7: 70}, False, id="an epoch that the log does not have"),
    pytest.param(15, 45, {1: 15, 2: 20, 4: 40}, False, id="an epoch of the log is missing"),
    pytest.param(15, 95, dict(LOG), False, id="ends beyond the log"),
    pytest.param(15, 90, {1: 15, 2: 20, 3: 30, 4: 40, 5: 50, 7: 70}, False, id="ends at the log end offset"),
    pytest.param(5, 25, {1: 5, 2: 20}, False, id="begins before its epoch"),
    pytest.param(15, 35, {1: 15, 2: 20}, False, id="ends after its epoch"),
    pytest.param(75, 80, {8: 75}, False, id="later than all epochs of the log"),
    pytest.param(15, 35, {1: 15, 2: 20, 3: 20, 4: 20, 5: 20}, False, id="epochs without records, and a wrong one"),
]
OVERLAPPING = [
    pytest.param(14, 150, {5: 14, 7: 15, 9: 100}, True, id="begins below the log start"),
    pytest.param(2, 7, {2: 5, 3: 6}, False, id="older than all epochs"),
    pytest.param(15, 250, {7: 15, 9: 100, 10: 200}, False, id="newer epochs"),
    pytest.param(75, 100, {8: 75}, False, id="an epoch between"),
    pytest.param(15, 150, {7: 15, 9: 101}, False, id="an epoch begins elsewhere"),
    pytest.param(99, 150, {9: 99}, False, id="begins before its epoch"),
]


@pytest.mark.parametrize(("start", "end", "epochs", "belongs"), CASES)
def test_a_segment_is_in_the_lineage_if_its_epochs_are_those_of_the_log(start, end, epochs, belongs) -> None:
    assert is_in_lineage(an_entry(start, end, epochs), 90, LOG) == belongs


@pytest.mark.parametrize(("start", "end", "epochs", "belongs"), OVERLAPPING)
def test_a_segment_may_begin_below_the_log(start, end, epochs, belongs) -> None:
    assert is_in_lineage(an_entry(start, end, epochs), 210, AFTER_RETENTION) == belongs


def test_a_log_or_a_segment_without_epochs_has_no_lineage() -> None:
    assert not is_in_lineage(an_entry(0, 9), 90, [])
    assert not is_in_lineage(an_entry(0, 9, {}), 90, LOG)


def test_epochs_without_records_are_left_out() -> None:
    assert with_records([(0, 0), (1, 0), (2, 0), (4, 10), (5, 10)]) == [(2, 0), (5, 10)]


def test_the_epochs_of_a_range_begin_with_it() -> None:
    assert epochs_between(LOG, 15, 30) == [(1, 15), (2, 20)]
    assert epochs_between(LOG, 20, 21) == [(2, 20)]
    assert epochs_between(AFTER_RETENTION, 40, 60) == [(7, 51)]
    assert epochs_between(AFTER_RETENTION, 40, 50) == []


class Copies:
    """The finished copies of a partition, which `removed` ones have been."""

    def __init__(self, *entries: SegmentEntry, removed: Sequence[SegmentEntry] = ()) -> None:
        self._entries = entries
        self._ever = (*entries, *removed)

    def entries(self, epoch: int) -> list[SegmentEntry]:
        return sorted((each for each in self._entries if epoch in each.leader_epochs), key=lambda each: each.start_offset)

    def find(self, epoch: int, offset: int, accepts: Accepts = any_copy) -> SegmentEntry | None:
        found = [each for each in self.entries(epoch) if each.leader_epochs[epoch] <= offset <= self._end(each, epoch) and accepts(each)]
        return found[-1] if found else None

    def highest_offset(self, epoch: int) -> int | None:
        return max((self._end(each, epoch) for each in self._ever if epoch in each.leader_epochs), default=None)

    def _end(self, entry: SegmentEntry, epoch: int) -> int:
        return min((offset - 1 for later, offset in entry.leader_epochs.items() if later > epoch), default=entry.end_offset)


def test_the_highest_copied_offset_is_that_of_the_newest_copy_in_the_lineage() -> None:
    bounds = LogBounds(0, 90, LOG)
    first, second = an_entry(15, 29, {1: 15, 2: 20}), an_entry(50, 60, {5: 50})
    assert highest_copied(bounds, Copies(first, second)) == OffsetAndEpoch(60, 5)
    foreign = an_entry(61, 75, {5: 61})  # of a former leader, whose last records the log does not have
    assert highest_copied(bounds, Copies(first, second, foreign)) == OffsetAndEpoch(60, 5)
    assert highest_copied(bounds, Copies(first, foreign)) == OffsetAndEpoch(29, 2)
    assert highest_copied(bounds, Copies(an_entry(80, 89, {8: 80}))) == NOTHING_COPIED


def test_removed_copies_below_the_log_start_count_as_copied() -> None:
    removed = an_entry(50, 60, {5: 50})
    assert highest_copied(LogBounds(61, 90, LOG), Copies(removed=[removed])) == OffsetAndEpoch(60, 5)
    assert highest_copied(LogBounds(55, 90, LOG), Copies(removed=[removed])) == NOTHING_COPIED
    assert highest_copied(LogBounds(55, 90, LOG), Copies(an_entry(50, 56, {5: 50}), removed=[removed])) == OffsetAndEpoch(56, 5)


def test_removed_copies_count_as_copied_although_the_log_has_no_other_record_of_their_epoch_before_its_start() -> None:
    removed = an_entry(50, 60, {5: 50})
    cut = [(5, 61), (7, 70)]
    assert highest_copied(LogBounds(61, 90, cut), Copies(removed=[removed])) == OffsetAndEpoch(60, 5)
    assert highest_copied(LogBounds(65, 90, [(5, 65), (7, 70)]), Copies(removed=[removed])) == OffsetAndEpoch(60, 5)
    assert highest_copied(LogBounds(70, 90, cut[1:]), Copies(removed=[removed])) == NOTHING_COPIED
    assert highest_copied(LogBounds(75, 90, [(6, 75), (7, 80)]), Copies(removed=[an_entry(50, 60, {7: 50})])) == NOTHING_COPIED


def test_the_first_offset_is_found_that_the_lineage_does_not_have() -> None:
    copies = Copies(an_entry(15, 29, {1: 15, 2: 20}), an_entry(30, 45, {3: 30, 4: 40}), an_entry(50, 75, {5: 50}))
    assert first_missing(15, 45, 90, LOG, copies.find) is None
    assert first_missing(25, 41, 90, LOG, copies.find) is None
    assert first_missing(14, 45, 90, LOG, copies.find) == 14
    assert first_missing(15, 46, 90, LOG, copies.find) == 46
    assert first_missing(50, 60, 90, LOG, copies.find) == 50  # the copy has records that the log does not have
    assert first_missing(0, 5, 90, AFTER_RETENTION, copies.find) == 0


def test_a_copy_of_a_lost_history_hides_none_of_the_lineage() -> None:
    own, lost = an_entry(50, 75, {5: 50, 7: 70}), an_entry(55, 80, {5: 55})
    assert first_missing(60, 75, 90, LOG, Copies(own, lost).find) is None
    assert first_missing(60, 75, 90, LOG, Copies(lost).find) == 60


def test_the_first_remote_offset_is_that_of_the_first_readable_segment_of_the_log() -> None:
    copies = Copies(an_entry(0, 12, {0: 0, 8: 9}), an_entry(13, 19, {1: 13}))
    assert first_remote_offset(LogBounds(0, 90, LOG), copies.entries) == 13
    assert first_remote_offset(LogBounds(0, 90, LOG), Copies().entries) is None


@st.composite
def histories(draw) -> list[tuple[int, int]]:
    """The epochs of a log: both rise, some without records."""
    steps = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 10)), min_size=1, max_size=8))
    epoch, offset, found = -1, 0, []
    for at, (by, records) in enumerate(steps):
        epoch, offset = epoch + by, offset + (records if at else 0)
        found.append((epoch, offset))
    return found


@given(histories(), st.integers(0, 100), st.integers(0, 30), st.integers(0, 120), st.integers(0, 120))
def test_a_segment_stays_in_the_lineage_until_an_election_cuts_into_it(log, start, length, cut_at, log_start) -> None:
    end = start + length
    log_end = max(log[-1][1], end + 1)
    segment = an_entry(start, end, dict(epochs_between(log, start, end + 1)))
    assert is_in_lineage(segment, log_end, with_records(log))
    # an unclean election: the log is cut, and goes on in an epoch that the former leader never had
    cut_at = min(cut_at, log_end)
    after = [(epoch, offset) for epoch, offset in log if offset < cut_at]
    after.append((log[-1][0] + 1, cut_at))
    assert is_in_lineage(segment, log_end + 100, with_records(after)) == (end < cut_at)
    # retention: segments that reach above the log start offset stay readable
    log_start = min(log_start, end)
    kept = epochs_between(log, log_start, log_end + 1)
    assert is_in_lineage(segment, log_end, with_records(kept))


def test_the_next_copy_behind_a_gap_is_one_of_the_log() -> None:
    bounds = LogBounds(0, 90, LOG)
    first, foreign, second = an_entry(15, 29, {1: 15, 2: 20}), an_entry(61, 75, {5: 61}), an_entry(30, 45, {3: 30, 4: 40})
    copies = Copies(first, foreign, second)
    assert [next_copy(at, bounds, copies.entries) for at in (5, 15, 29, 30, 80)] == [first, second, second, None, None]
