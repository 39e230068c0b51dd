"""Leader epochs of a partition: Kafka's LeaderEpochFileCache, case by case."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.disk.leader_epochs import LEADER_EPOCH_CHECKPOINT, LeaderEpochCache, encode_leader_epochs, read_leader_epochs
from ottla.storage.errors import CorruptCheckpoint
from tests.support.filesystems import MemoryFileSystem
from tests.support.golden_logs import LOGS

PARTITION = TopicPartition("topic", 0)
DIRECTORY = "/data/topic-0"
GOLDEN = sorted(LOGS.glob("*/*/leader-epoch-checkpoint"))


def a_cache(*entries: tuple[int, int], filesystem: MemoryFileSystem | None = None) -> LeaderEpochCache:
    filesystem = filesystem or MemoryFileSystem()
    filesystem.make_directory(DIRECTORY)
    cache = LeaderEpochCache(PARTITION, DIRECTORY, filesystem)
    for epoch, start_offset in entries:
        cache.assign(epoch, start_offset)
    return cache


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_a_recorded_file_is_written_again_to_the_same_bytes(path: Path) -> None:
    assert encode_leader_epochs(read_leader_epochs(str(path), RealFileSystem())) == path.read_bytes()


# entries before, (epoch, start offset) assigned, entries after
ASSIGNMENTS = [
    pytest.param([], (0, 0), [(0, 0)], id="the first"),
    pytest.param([(0, 0)], (0, 5), [(0, 0)], id="the same epoch goes on"),
    pytest.param([(0, 0)], (3, 5), [(0, 0), (3, 5)], id="a later one"),
    pytest.param([(0, 0), (1, 5)], (2, 5), [(0, 0), (2, 5)], id="an epoch without records is replaced"),
    pytest.param([(0, 0), (2, 5)], (2, 3), [(0, 0), (2, 3)], id="the same epoch began earlier"),
    pytest.param([(0, 0), (2, 5), (3, 9)], (4, 4), [(0, 0), (4, 4)], id="offsets that contradict go"),
    pytest.param([(1, 0), (3, 5)], (2, 8), [(1, 0), (2, 8)], id="epochs that contradict go"),
    pytest.param([(3, 5)], (2, 3), [(2, 3)], id="all contradict"),
]


@pytest.mark.parametrize(("before", "assigned", "after"), ASSIGNMENTS)
def test_an_assigned_epoch_wins_over_what_contradicts_it(
    before: list[tuple[int, int]], assigned: tuple[int, int], after: list[tuple[int, int]]
) -> None:
    filesystem = MemoryFileSystem()
    cache = a_cache(*before, filesystem=filesystem)
    assert cache.assign(*assigned) == (before != after)
    assert cache.entries == after
    assert LeaderEpochCache(PARTITION, DIRECTORY, filesystem).entries == after


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_are_a_mistake(epoch: int, start_offset: int) -> None:
    with pytest.raises(ValueError, match="of topic-0"):
        a_cache().assign(epoch, start_offset)


# entries 2 from 10, 3 from 20, 7 from 30; the log ends at 40
END_OFFSETS = [(-1, (-1, -1)), (0, (0, 10)), (1, (1, 10)), (2, (2, 20)), (3, (3, 30)), (5, (3, 30)), (7, (7, 40)), (8, (-1, -1))]


@pytest.mark.parametrize(("asked", "answer"), END_OFFSETS)
def test_an_epoch_ends_where_the_next_one_begins(asked: int, answer: tuple[int, int]) -> None:
    assert a_cache((2, 10), (3, 20), (7, 30)).end_offset_for(asked, 40) == answer


def test_without_epochs_no_end_is_known() -> None:
    assert a_cache().end_offset_for(0, 40) == (-1, -1)


@pytest.mark.parametrize(
    ("end_offset", "left"),
    [(31, [(2, 10), (3, 20), (7, 30)]), (30, [(2, 10), (3, 20)]), (11, [(2, 10)]), (0, []), (-1, [(2, 10), (3, 20), (7, 30)])],
)
def test_truncation_from_the_end_removes_epochs_that_begin_there_or_later(end_offset: int, left: list[tuple[int, int]]) -> None:
    cache = a_cache((2, 10), (3, 20), (7, 30))
    cache.truncate_from_end(end_offset)
    assert cache.entries == left
    assert cache.is_dirty == (len(left) < 3)


@pytest.mark.parametrize(
    ("start_offset", "left"),
    [
        (9, [(2, 10), (3, 20), (7, 30)]),
        (10, [(2, 10), (3, 20), (7, 30)]),
        (11, [(2, 11), (3, 20), (7, 30)]),
        (20, [(3, 20), (7, 30)]),
        (25, [(3, 25), (7, 30)]),
        (99, [(7, 99)]),
    ],
)
def test_truncation_from_the_start_lets_the_epoch_it_hits_begin_there(start_offset: int, left: list[tuple[int, int]]) -> None:
    cache = a_cache((2, 10), (3, 20), (7, 30))
    cache.truncate_from_start(start_offset)
    assert cache.entries == left


def test_epochs_are_found_by_number_and_by_offset() -> None:
    cache = a_cache((2, 10), (3, 20), (7, 30))
    assert [cache.epoch_of(offset) for offset in (9, 10, 19, 20, 99)] == [None, 2, 2, 3, 7]
    assert [cache.start_offset_of(epoch) for epoch in (1, 2, 5, 7)] == [None, 10, None, 30]
    assert (cache.latest_epoch, a_cache().latest_epoch) == (7, None)


def test_a_flush_brings_the_file_up_to_date_after_truncation() -> None:
    filesystem = MemoryFileSystem()
    cache = a_cache((2, 10), (3, 20), filesystem=filesystem)
    cache.truncate_from_end(20)
    assert read_leader_epochs(cache.path, filesystem) == [(2, 10), (3, 20)]
    cache.flush()
    assert read_leader_epochs(cache.path, filesystem) == [(2, 10)]
    cache.clear()
    cache.flush()
    assert filesystem.read_file(cache.path) == b"0\n0\n"


def test_whoever_listens_writes_the_file() -> None:
    filesystem = MemoryFileSystem()
    cache = a_cache(filesystem=filesystem)
    told = []
    cache.on_change = told.append
    cache.assign(0, 0)
    cache.assign(0, 3)
    cache.truncate_from_end(0)
    cache.flush()
    assert told == [cache, cache]
    assert not filesystem.exists(cache.path)
    assert cache.take_file() == b"0\n0\n"
    assert not cache.is_dirty


@pytest.mark.parametrize("content", [b"0\n1\n0\n", b"0\n1\n0 x\n", b"0\n1\n-1 0\n", b"0\n2\n0 0\n"])
def test_garbage_is_refused_with_file_and_line(content: bytes) -> None:
    filesystem = MemoryFileSystem()
    filesystem.make_directory(DIRECTORY)
    filesystem.open(f"{DIRECTORY}/{LEADER_EPOCH_CHECKPOINT}", create=True).write(content)
    with pytest.raises(CorruptCheckpoint, match=rf"^{DIRECTORY}/{LEADER_EPOCH_CHECKPOINT}: line "):
        LeaderEpochCache(PARTITION, DIRECTORY, filesystem)


steps = st.one_of(
    st.tuples(st.just("assign"), st.integers(0, 9), st.integers(0, 50)),
    st.tuples(st.just("end"), st.integers(0, 50)),
    st.tuples(st.just("start"), st.integers(0, 50)),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=20))
def test_epochs_and_offsets_grow_whatever_happens_and_the_last_word_counts(history: list[tuple[str, int, int] | tuple[str, int]]) -> None:
    cache = a_cache()
    for name, *arguments in history:
        if name == "assign":
            epoch, start_offset = arguments
            cache.assign(epoch, start_offset)
            assert cache.latest_epoch == epoch
        elif name == "end":
            cache.truncate_from_end(*arguments)
            assert all(start < arguments[0] for _, start in cache.entries)
        else:
            cache.truncate_from_start(*arguments)
        epochs = [epoch for epoch, _ in cache.entries]
        starts = [start for _, start in cache.entries]
        assert epochs == sorted(set(epochs))
        assert starts == sorted(set(starts))
