"""Cleaned segments whose files a thread puts in place while the event loop goes on: reads, cuts, deletes, moves, stops."""

from collections.abc import Callable

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.checkpoint import CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segment.discard import DISCARD_SEGMENTS
from ottla.storage.segment.swap import Swap
from tests.support.batches import FIRST_TIMESTAMP
from tests.support.cleaners import InlineCleaner
from tests.support.compacted_logs import Writer, committed_of, latest_of
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import CLUSTER_ID, Disks, topic

T0 = TopicPartition("orders", 0)


class Swapping:
    """A log whose cleaner has cleaned a group of segments, the second cleaning of it; the thread that is to put them in place waits."""

    def __init__(self) -> None:
        memory = MemoryFileSystem()
        self.filesystem = FaultyFileSystem(memory)
        self.disks = Disks(self.filesystem, "/a,/b")
        self.disks.clock.move(FIRST_TIMESTAMP - self.disks.clock.now_ms())
        self.disks.topics["orders"] = dict(topic(cleanup_policy="compact", segment_bytes=600, index_interval_bytes=0))
        self.manager = self.disks.a_manager()
        self.manager.cleaner._new_worker = lambda: InlineCleaner(memory)
        self.manager.open()
        self.manager.identify(CLUSTER_ID, 0)
        self.manager.load()
        self.manager.start()
        self.background = self.disks.background
        self.background.advance(1000)  # the cleaner has looked, and found nothing
        self.log = self.manager.get_or_create(T0, is_new=True, log_dir="/a")
        writer = Writer(self.log)
        _fill(writer)
        self.background.advance(20_000)
        _fill(writer)
        self.background.advance(10)
        self.values = values(self.log)
        self.clean = self.clean_up_to()
        self.bases = self.log.segments.bases
        self.held: list[Callable[[], None]] = []
        submit = self.background.submit

        def hold(name: str, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
            if name.startswith(DISCARD_SEGMENTS):
                self.held.append(lambda: submit(name, work, then))
            else:
                submit(name, work, then)

        self.background.submit = self.manager.context.submit = hold  # type: ignore[method-assign]  # to hold one thing back
        self.background.advance(20_000)
        assert len(self.held) == 1
        (swap,) = self.log.discards.in_progress
        assert isinstance(swap, Swap)
        self.swap = swap

    def release(self) -> None:
        """The thread comes to it, and the cleaner goes on to its end."""
        while self.held:
            held, self.held = self.held, []
            for each in held:
                each()
            self.background.advance(20_000)

    def clean_up_to(self) -> int | None:
        """As it is written down."""
        if not self.filesystem.exists(f"/a/{CLEANER_OFFSET_CHECKPOINT}"):
            return None
        return OffsetCheckpoint("/a", CLEANER_OFFSET_CHECKPOINT, self.filesystem).read().get(T0)

    def restart(self) -> PartitionLog:
        self.disks.crash(self.manager)
        self.background.work.clear()
        self.background.timers.clear()
        self.manager = self.disks.start()
        found = self.manager.get(T0)
        assert found is not None
        found.update_high_watermark(found.log_end_offset)
        return found

    def names(self) -> list[str]:
        return self.filesystem.list_directory(self.log.directory)  # type: ignore[no-any-return]  # a faulty disk passes everything on, untyped


def _fill(writer: Writer) -> None:
    for number in range(24):
        writer.write([(b"key-%d" % (number % 3), b"value-%d" % number), (b"key-%d" % (number // 8), b"x" * 50)], producer_id=1)
        if number % 6 == 0:
            writer.write([(b"key-1", b"aborted")], producer_id=5, transactional=True)
            writer.end(5, commit=False)


def values(log: PartitionLog) -> dict[bytes, bytes | None]:
    """What consumers find, from files that are opened anew."""
    for segment in log.segments:
        segment.release()
    log.reader.hints.clear()
    return {key: record.value for key, record in latest_of(committed_of(log)).items()}


def test_the_log_has_the_cleaned_segment_before_its_files_have_their_names() -> None:
    world = Swapping()
    assert len(world.log.segments) < len(world.bases)
    assert world.log.segments.first is world.swap.cleaned
    assert values(world.log) == world.values
    assert f"{0:020d}.log.cleaned" in world.names()
    assert f"{0:020d}.log.swap" not in world.names()


def test_it_is_read_between_any_two_renames() -> None:
    world = Swapping()
    looked = 0

    def look(name: str, path: str) -> bool:
        nonlocal looked
        if name == "rename":
            world.filesystem.fails_if = None
            assert values(world.log) == world.values
            world.filesystem.fails_if = look
            looked += 1
        return False

    world.filesystem.fails_if = look
    world.swap.run()
    assert looked > 20
    assert values(world.log) == world.values


def test_files_may_get_their_next_names_while_they_are_looked_for() -> None:
    world = Swapping()
    opened = world.swap.cleaned.paths[:3]

    def rename_first(name: str, path: str) -> bool:
        if name == "open":
            world.filesystem.fails_if = None
            world.swap.run()
        return False

    world.filesystem.fails_if = rename_first
    found = [world.swap.cleaned.filesystem.open(path, read_only=True) for path in opened]
    assert [file.path for file in found] == opened
    assert found[0].size() == world.swap.cleaned.size


def test_the_old_segments_aborted_transactions_are_not_those_of_the_cleaned_one() -> None:
    world = Swapping()
    for name in [name for name in world.names() if name.endswith(".txnindex.cleaned")]:
        world.filesystem.unlink(f"{world.log.directory}/{name}")
    log = world.log
    swap = Swap(world.filesystem, log.files.small_files, 0, [], log.segments.settings, now_ms=0)
    assert f"{0:020d}.txnindex" in world.names()
    assert not swap.cleaned.transaction_index.exists()
    assert swap.cleaned.transaction_index.entries() == []


@pytest.mark.slow
@pytest.mark.parametrize("done", range(0, 60, 3))
def test_a_crash_at_any_rename_loses_no_value(done: int) -> None:
    world = Swapping()
    left = done

    def stop(name: str, path: str) -> bool:
        nonlocal left
        left -= name == "rename"
        return left < 0

    world.filesystem.fails_if = stop
    for each in world.held:
        each()
    world.background.run_work()
    assert world.clean_up_to() == world.clean
    world.filesystem.fails_if = None
    found = world.restart()
    assert values(found) == world.values
    assert not [name for name in world.names() if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_what_is_clean_is_written_down_only_when_the_files_are_in_place() -> None:
    world = Swapping()
    world.background.advance(60_000)
    assert world.clean_up_to() == world.clean
    world.release()
    assert world.clean_up_to() == world.log.segments.active.base_offset != world.clean
    assert values(world.log) == world.values
    assert world.log.discards.in_progress == []
    world.background.advance(120_000)
    world.release()
    assert not [name for name in world.names() if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_an_unexpected_error_fails_the_directory_and_ends_the_cleaning(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Swapping()

    def rename(swap: Swap) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Swap, "_rename", rename)
    world.release()
    assert world.manager.offline_log_dirs == ["/a"]
    assert not world.manager.cleaner._tasks
    with pytest.raises(ValueError, match="a bug"):
        world.swap.run()


def test_a_clean_stop_meanwhile_leaves_the_cleaned_segment() -> None:
    world = Swapping()
    bases = world.log.segments.bases
    world.manager.shutdown()
    assert not [name for name in world.names() if name.endswith((".cleaned", ".swap"))]
    world.manager = world.disks.start()
    found = world.manager.get(T0)
    assert found is not None
    found.update_high_watermark(found.log_end_offset)
    assert found.segments.bases == bases
    assert values(found) == world.values


def test_a_cut_meanwhile_keeps_what_is_below_it() -> None:
    world = Swapping()
    world.log.truncations.truncate_in_thread(world.log.segments.bases[-2], lambda error: None)
    world.background.advance(100)
    world.release()
    assert world.manager.offline_log_dirs == []
    world.log.update_high_watermark(world.log.log_end_offset)
    before = values(world.log)
    assert before
    assert values(world.restart()) == before


def test_a_log_that_begins_anew_meanwhile_is_empty() -> None:
    world = Swapping()
    world.log.truncations.truncate_fully_in_thread(0, lambda error: None)
    world.background.advance(100)
    world.release()
    assert world.manager.offline_log_dirs == []
    assert world.log.size_bytes == 0
    world.background.advance(120_000)
    found = world.restart()
    assert (found.size_bytes, found.log_end_offset) == (0, 0)


def test_the_cleaned_segment_may_be_deleted_before_it_is_in_place() -> None:
    world = Swapping()
    bases = world.log.segments.bases
    world.log.increment_log_start_offset(bases[1], "DeleteRecords")
    world.log.delete_old_segments(lambda segment, _: segment.base_offset < bases[1], "DeleteRecords")
    before = values(world.log)
    world.release()
    assert world.manager.offline_log_dirs == []
    assert world.log.segments.bases[0] == bases[1]
    assert values(world.log) == before
    world.background.advance(120_000)
    world.release()
    assert not [name for name in world.names() if name.startswith(f"{0:020d}")]


def test_a_log_that_is_deleted_meanwhile_takes_it_along() -> None:
    world = Swapping()
    world.manager.delete(T0)
    new = world.manager.get_or_create(T0, is_new=True, log_dir="/a")
    Writer(new).write([(b"key", b"new")])
    world.release()
    world.background.advance(120_000)
    assert [name for name in world.filesystem.list_directory("/a") if name.startswith("orders")] == ["orders-0"]
    assert values(new) == {b"key": b"new"}
    assert world.manager.offline_log_dirs == []


def test_its_directory_may_get_another_name_meanwhile() -> None:
    world = Swapping()
    world.manager.cleaner.pause_cleaning(T0, "it moves")
    world.log.move_to("/a/orders-1")
    assert values(world.log) == world.values
    world.release()
    assert world.manager.offline_log_dirs == []
    assert values(world.log) == world.values


def test_a_disk_that_refuses_a_rename_is_offline_and_the_cleaner_goes_on_elsewhere() -> None:
    world = Swapping()
    world.filesystem.fails_if = lambda name, path: name == "rename" and path.startswith("/a/")
    world.manager.on_log_dir_failure = world.manager.handle_log_dir_failure
    world.release()
    assert world.manager.offline_log_dirs == ["/a"]
    assert world.manager.cleaner._tasks == {}


def test_a_follower_that_begins_anew_above_its_end_takes_nothing_offline() -> None:
    world = Swapping()
    offset = world.log.log_end_offset + 100
    world.log.truncations.truncate_fully_in_thread(offset, lambda error: None)
    world.background.advance(100)
    world.release()
    assert world.manager.offline_log_dirs == []
    assert (world.log.size_bytes, world.log.log_end_offset) == (0, offset)
