"""The cache of segments follows Apache Kafka's RemoteLogMetadataCache: the cases of its own tests, and its oddities."""

import random
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from ottla.storage.remote.entries import SegmentEntry, SegmentState, SegmentUpdate
from ottla.storage.remote.metadata.records import SEGMENT, encode_entry, encode_update, read_record
from ottla.storage.remote.metadata.segment_cache import RecordRefused, SegmentCache
from ottla.storage.remote.object_layout import with_mark
from tests.support.remote_metadata import A_PARTITION, an_entry, an_update, golden_values

STARTED, FINISHED, DELETING, DELETED = SegmentState
PATHS = {"started": (), "finished": (FINISHED,), "given up": (DELETING,), "being deleted": (FINISHED, DELETING)}


def take(cache: SegmentCache, what: SegmentEntry | SegmentUpdate) -> None:
    """Takes in a record, which goes through its bytes."""
    record = read_record(encode_entry(what) if isinstance(what, SegmentEntry) else encode_update(what))
    if record.kind == SEGMENT:
        cache.add(record.key, record.packed)
    else:
        cache.change(record.key, *record[4:])


def bring(cache: SegmentCache, entry: SegmentEntry, *states: SegmentState) -> SegmentEntry:
    """Adds a copy, and brings it to states one by one. Returns its entry after that."""
    take(cache, entry)
    for state in states:
        update = an_update(entry, state)
        take(cache, update)
        entry = replace(entry, state=state, broker_id=update.broker_id, event_timestamp_ms=update.event_timestamp_ms)
    return entry


def a_cache() -> SegmentCache:
    return SegmentCache(A_PARTITION)


def numbers(entries: Iterable[SegmentEntry]) -> list[int]:
    return [int.from_bytes(each.id.uuid, "big") for each in entries]


def test_entries_that_are_not_finished_are_found_alone_and_by_their_offsets() -> None:
    cache = a_cache()
    bring(cache, an_entry(1, 0, 99), FINISHED)
    deleting = bring(cache, an_entry(2, 300, 399), FINISHED, DELETING)
    begun = bring(cache, an_entry(3, 100, 199))
    bring(cache, an_entry(4, 0, 99), FINISHED)  # replaces the first one, which is finished all the same
    assert list(cache.unfinished(0)) == [begun, deleting]
    take(cache, an_update(begun, FINISHED))
    assert list(cache.unfinished(0)) == [deleting]
    assert not cache.unfinished(1)


@pytest.mark.parametrize("target", SegmentState)
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_only_the_transitions_of_kip_405_are_taken(path: tuple[SegmentState, ...], target: SegmentState) -> None:
    allowed = {STARTED: {FINISHED, DELETING}, FINISHED: {FINISHED, DELETING}, DELETING: {DELETING, DELETED}}
    cache = a_cache()
    entry = bring(cache, an_entry(1, 0, 100), *path)
    if target in allowed[entry.state]:
        take(cache, an_update(entry, target))
        after = cache.get(entry.id.uuid)
        assert (after.state if after is not None else DELETED) is target
    else:
        with pytest.raises(RecordRefused):
            take(cache, an_update(entry, target))
        assert cache.get(entry.id.uuid) == entry


@pytest.mark.parametrize("state", [FINISHED, DELETING, DELETED])
def test_a_new_segment_has_the_state_started(state: SegmentState) -> None:
    cache = a_cache()
    with pytest.raises(RecordRefused):
        take(cache, replace(an_entry(1, 0, 100), state=state))
    assert len(cache) == 0


def test_a_segment_may_be_started_twice_but_not_after_it_is_finished() -> None:
    cache = a_cache()
    entry = an_entry(1, 0, 100)
    take(cache, entry)
    take(cache, entry)
    finished = bring(cache, entry, FINISHED)
    with pytest.raises(RecordRefused):
        take(cache, entry)
    assert cache.get(entry.id.uuid) == finished


def test_an_unknown_segment_is_not_updated() -> None:
    with pytest.raises(RecordRefused):
        take(a_cache(), an_update(an_entry(1, 0, 100), DELETING))


def test_the_life_of_four_segments() -> None:
    cache = a_cache()
    first = an_entry(1, 0, 100, {0: 0, 1: 20, 2: 80})
    take(cache, first)
    assert cache.find(1, 40) is None
    assert [cache.highest_offset(epoch) for epoch in range(3)] == [None, None, None]
    take(cache, an_update(first, FINISHED))
    first = replace(first, state=FINISHED, broker_id=2, event_timestamp_ms=first.event_timestamp_ms + 1)
    second = bring(cache, an_entry(2, 101, 200, {2: 101}), FINISHED)
    third = bring(cache, an_entry(3, 201, 300, {2: 201, 3: 240}), FINISHED)
    fourth = bring(cache, an_entry(4, 250, 400, {3: 250, 4: 370}), FINISHED)
    expected: Mapping[tuple[int, int], SegmentEntry | None] = {
        (1, 40): first,
        (2, 110): second,
        (3, 240): third,
        (3, 250): fourth,
        (4, 375): fourth,
        (1, 110): None,
        (4, 401): None,
        (5, 301): None,
    }
    assert {place: cache.find(*place) for place in expected} == expected
    take(cache, an_update(first, DELETING))
    assert cache.find(0, 10) is None
    take(cache, an_update(first, DELETED))
    assert cache.find(0, 10) is None
    assert [cache.highest_offset(epoch) for epoch in range(6)] == [19, 79, 239, 369, 400, None]


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_segments_are_listed_until_their_deletion_is_finished(path: tuple[SegmentState, ...]) -> None:
    cache = a_cache()
    entry = bring(cache, an_entry(1, 101, 200), *path)
    assert list(cache.entries(0)) == [entry]
    assert list(cache.all_entries()) == [entry]
    assert cache.find(0, 150) == (entry if entry.state is FINISHED else None)


def test_a_deleted_segment_leaves_nothing_but_the_highest_offset() -> None:
    cache = a_cache()
    bring(cache, an_entry(1, 0, 100), FINISHED, DELETING, DELETED)
    assert not cache.entries(0)
    assert not cache.all_entries()
    assert cache.highest_offset(0) == 100


def test_segments_of_an_epoch_are_listed_by_start_offset() -> None:
    cache = a_cache()
    entries = [
        bring(cache, an_entry(1, 0, 100), FINISHED),
        bring(cache, an_entry(2, 101, 200), FINISHED),
        bring(cache, an_entry(3, 201, 400, {0: 201, 1: 301}), FINISHED),
    ]
    assert list(cache.entries(0)) == entries
    assert list(cache.entries(1)) == entries[2:]
    assert list(cache.all_entries()) == entries
    assert cache.entries(0)[1] == entries[1]
    assert list(cache.entries(0)[1:]) == entries[1:]
    assert not cache.entries(2)


OVERLAPS = {
    "duplicate": ([(10, 100), (10, 100)], {11: 2}, [1, 2]),
    "same start, longer": ([(10, 100), (10, 150)], {11: 2, 111: 2}, [1, 2]),
    "begins before, ends later": ([(10, 100), (5, 150)], {11: 2}, [1, 2]),
    "many": ([(10, 100), (5, 150), (148, 155), (4, 200)], {11: 4, 150: 4}, [1, 2, 3, 4]),
    "inside": ([(0, 100), (50, 80)], {60: 2, 40: 1, 90: 1}, [1, 2]),
    "two inside": ([(0, 100), (20, 30), (50, 80)], {25: 2, 60: 3, 40: 1, 90: 1, 101: None}, [1, 2, 3]),
    "same start, shorter": ([(10, 100), (10, 50)], {11: 2, 70: 1, 101: None}, [1, 2]),
}


@pytest.mark.parametrize(("spans", "found", "listed"), OVERLAPS.values(), ids=OVERLAPS)
def test_overlapping_segments_are_resolved_as_in_apache_kafka_and_none_hides_the_rest_of_another(
    spans: list[tuple[int, int]], found: dict[int, int | None], listed: list[int]
) -> None:
    cache = a_cache()
    for number, (start, end) in enumerate(spans, 1):
        bring(cache, an_entry(number, start, end), FINISHED)
    at = {offset: cache.find(0, offset) for offset in found}
    assert {offset: entry and int.from_bytes(entry.id.uuid, "big") for offset, entry in at.items()} == found
    assert sorted(numbers(cache.entries(0))) == listed
    assert sorted(numbers(cache.all_entries())) == list(range(1, len(spans) + 1))
    starts = [each.start_offset for each in cache.entries(0)]
    assert starts == sorted(starts)
    assert cache.highest_offset(0) == max(end for _, end in spans)


def test_a_copy_that_is_not_accepted_hides_no_other() -> None:
    cache = a_cache()
    spans = [(10, 100), (5, 150), (50, 80)]
    superseded, longer, nearer = (bring(cache, an_entry(number, *span), FINISHED) for number, span in enumerate(spans))
    accepted: list[list[SegmentEntry]] = [[longer, nearer], [superseded, longer], [superseded], []]
    found = [cache.find(0, 60, some.__contains__) for some in accepted]
    assert found == [nearer, longer, superseded, None]


def test_a_superseded_segment_can_be_deleted() -> None:
    cache = a_cache()
    superseded = bring(cache, an_entry(1, 10, 100), FINISHED)
    other = bring(cache, an_entry(2, 10, 50), FINISHED)
    take(cache, an_update(superseded, DELETING))
    assert cache.find(0, 20) == other
    take(cache, an_update(superseded, DELETED))
    assert list(cache.all_entries()) == [other]


def test_a_segment_that_was_added_twice_with_other_epochs_is_listed_only_while_it_is_known() -> None:
    cache = a_cache()
    take(cache, an_entry(1, 0, 100, {0: 0}))
    bring(cache, an_entry(1, 0, 100, {1: 0}), DELETING, DELETED)
    assert not cache.entries(0)


def test_a_mark_in_a_finished_copy_counts_until_it_or_the_copy_is_removed() -> None:
    cache = a_cache()
    mark = with_mark(None, True)
    entries = [bring(cache, an_entry(number, 100 * number, 100 * number + 99), FINISHED) for number in range(2)]
    assert cache.marked() is None
    for end in (lambda: take(cache, an_update(entries[0], FINISHED)), lambda: take(cache, an_update(entries[0], DELETING))):
        take(cache, an_update(entries[0], FINISHED, custom=mark))
        marked = cache.marked()
        assert marked is not None
        assert (marked.id, marked.custom) == (entries[0].id, mark)
        assert cache.find(0, 50) == marked
        take(cache, an_update(entries[1], FINISHED))
        assert cache.marked() == marked
        end()
        assert cache.marked() is None


def test_custom_metadata_are_those_of_the_last_record() -> None:
    cache = a_cache()
    entry = an_entry(1, 0, 100, custom=b"first")
    take(cache, entry)
    take(cache, an_update(entry, FINISHED, custom=b"second"))
    found = cache.find(0, 50)
    assert found is not None
    assert found.custom == b"second"
    take(cache, an_update(entry, DELETING))
    assert cache.all_entries()[0].custom is None


def test_the_records_of_apache_kafka_lead_to_finished_and_deleted_segments() -> None:
    caches: dict[bytes, SegmentCache] = {}
    for value in golden_values():
        record = read_record(value)
        cache = caches.setdefault(record.place, a_cache())
        if record.kind == SEGMENT:
            cache.add(record.key, record.packed)
        else:
            cache.change(record.key, *record[4:])
    states = [entry.state for cache in caches.values() for entry in cache.all_entries()]
    assert len(caches) > 5
    assert set(states) == {FINISHED}


def test_an_entry_takes_at_most_200_bytes() -> None:
    cache = a_cache()
    count = 11_000  # a table of this size is little filled
    shuffled = random.Random(7)
    for number in range(count):
        bring(cache, an_entry(shuffled.getrandbits(128), 1000 * number, 1000 * number + 999), FINISHED)
    objects = sum(_allocated(key) + _allocated(packed) for key, packed in cache.packed.items())
    tables = sys.getsizeof(cache.packed) + sys.getsizeof(cache.epochs[0].keys)
    assert (objects + tables) / count <= 200


def _allocated(value: object) -> int:
    return (sys.getsizeof(value) + 15) // 16 * 16
