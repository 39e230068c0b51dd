"""Moving a log into another log directory while it is in use."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.directory_names import DirectoryKind, parse_directory_name
from ottla.storage.errors import LogDirFailure, LogDirNotFound
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.future_logs import may_have_future
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.manager.log_moves import CHUNK_BYTES
from tests.support.batches import a_batch
from tests.support.examples import number_of
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, a_future_log, offsets, topic
from tests.support.logs import append, read_all

T0 = TopicPartition("topic", 0)
TOPIC_ID = bytes(range(16))


def a_log_in_a(manager: LogManager, batches: int = 5) -> PartitionLog:
    """The log of topic-0 in /a, with a high watermark."""
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True, log_dir="/a")
    for _ in range(batches):
        append(log, a_batch(2))
    log.update_high_watermark(log.log_end_offset)
    return log


def begin_move(manager: LogManager, log: PartitionLog, log_dir: str = "/b") -> PartitionLog:
    future = a_future_log(manager, log, log_dir)
    manager.moves.start(T0)
    return future


def throttle(disks: Disks, bytes_per_second: int) -> None:
    disks.broker.update_dynamic({"replica.alter.log.dirs.io.max.bytes.per.second": str(bytes_per_second)}, {})


def step(disks: Disks) -> str:
    """One thing that is waiting to be done; its name."""
    background = disks.background
    if background.work:
        name, work, then = background.work.pop(0)
        work()
        then(None)
        return name
    timer = min(each for each in background.timers if each[3] == 0)
    background.timers.remove(timer)
    timer[4]()
    return timer[2]


def on_the_loop(disks: Disks, manager: LogManager, *names: str) -> Callable[[], list[str]]:
    """Gives the paths of the calls of these names from now on that no thread made."""
    calls = disks.watch(*names)
    found: list[str] = []
    submit = disks.background.submit

    def in_thread(name: str, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        def run() -> None:
            take()
            work()
            calls.clear()  # those are the thread's

        submit(name, run, then)

    def take() -> list[str]:
        found.extend(calls)
        calls.clear()
        return found

    disks.background.submit = manager.context.submit = in_thread  # type: ignore[method-assign]  # to tell who calls
    return take


def kinds_in(disks: Disks, log_dir: str) -> list[DirectoryKind]:
    found = (parse_directory_name(name) for name in disks.filesystem.list_directory(log_dir))
    return [parsed[1] for parsed in found if parsed is not None]


def test_a_log_moves_with_everything_that_is_in_it() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start(log_segment_delete_delay_ms=1000)
    log = a_log_in_a(manager)
    before = read_all(log)
    replaced: list[PartitionLog] = []
    manager.moves.on_replaced = replaced.append
    future = begin_move(manager, log)
    disks.background.advance(0)
    assert manager.get(T0) is future
    assert replaced == [future]
    assert manager.get(T0, future=True) is None
    assert (future.directory, future.topic_id, offsets(future), future.latest_epoch) == ("/b/topic-0", TOPIC_ID, (0, 10, 10), 0)
    assert read_all(future) == before
    assert (kinds_in(disks, "/a"), kinds_in(disks, "/b")) == ([DirectoryKind.DELETE], [DirectoryKind.CURRENT])
    disks.background.advance(1000)
    assert kinds_in(disks, "/a") == []
    append(future)
    manager.shutdown()
    again = disks.start().get(T0)
    assert again is not None
    assert (again.log_dir, offsets(again), again.topic_id) == ("/b", (0, 10, 11), TOPIC_ID)


def test_a_log_that_is_larger_than_a_chunk_moves_while_it_is_written() -> None:
    disks = Disks(log_dirs="/a,/b")
    disks.topics["topic"] = {"segment.bytes": "300000"}
    manager = disks.start()
    log = a_log_in_a(manager, 0)
    for _ in range(12):
        append(log, a_batch(1, value_bytes=100_000))
    log.update_high_watermark(9)
    begin_move(manager, log)
    while (current := manager.get(T0)) is log:
        if step(disks) == "alter-log-dirs" and log.log_end_offset < 20 and manager.get(T0) is log:
            append(log, a_batch(1, value_bytes=1000))
    assert current is not None
    assert log.size_bytes > 4 * CHUNK_BYTES
    assert log.log_end_offset > 12
    assert read_all(current) == read_all(log)
    assert offsets(current) == offsets(log)


def test_a_restart_in_the_middle_goes_on_where_the_copy_ended() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    log = a_log_in_a(manager, 0)
    for _ in range(6):
        append(log, a_batch(1, value_bytes=100_000))
    log.update_high_watermark(6)
    begin_move(manager, log)
    while manager.get(T0, future=True).log_end_offset == 0:  # type: ignore[union-attr]  # it stays None only if this test is wrong
        step(disks)
    expected = read_all(log)
    disks.crash(manager)
    again = disks.start()
    current, future = again.get(T0), again.get(T0, future=True)
    assert current is not None
    assert future is not None
    copied = future.log_end_offset
    assert 0 < copied < current.log_end_offset == 6
    again.moves.start(T0)
    assert future.log_end_offset == copied, "what agrees is not cut"
    disks.settle()
    assert again.get(T0) is future
    assert read_all(future) == expected


def test_a_truncation_follows_the_log() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    throttle(disks, 1000)
    log = a_log_in_a(manager, 0)
    for epoch in (0, 1, 2):
        append(log, a_batch(1, value_bytes=200_000), epoch=epoch)
    future = begin_move(manager, log)
    disks.background.advance(300_000)
    assert 0 < future.log_end_offset < 3
    log.truncations.truncate_to(1)
    assert future.log_end_offset == 1
    append(log, a_batch(3), epoch=5)
    expected = read_all(log)
    disks.background.advance(400_000)
    assert manager.get(T0) is future
    assert future.leader_epochs.entries == [(0, 0), (5, 1)]
    assert read_all(future) == expected


def test_what_disagrees_by_its_leader_epochs_is_cut_before_the_copy_goes_on() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    log = a_log_in_a(manager, 0)
    append(log, a_batch(4), epoch=1)
    future = a_future_log(manager, log, "/b")
    append(future, a_batch(4), epoch=1)
    append(future, a_batch(3), epoch=2)
    append(log, a_batch(2), epoch=3)
    manager.moves.start(T0)
    disks.background.advance(100)  # a thread cuts, and the copy goes on some milliseconds later
    assert manager.get(T0) is future
    assert read_all(future) == read_all(log)
    assert future.leader_epochs.entries == log.leader_epochs.entries == [(1, 0), (3, 4)]


def test_a_log_whose_records_were_deleted_moves_from_its_log_start_offset() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    log = a_log_in_a(manager, 3)
    log.increment_log_start_offset(3, "test")
    future = begin_move(manager, log)
    disks.background.advance(100)  # the log is emptied, and the copy goes on some milliseconds later
    assert manager.get(T0) is future
    assert (offsets(future), future.segments.first.base_offset) == ((3, 6, 6), 2)
    assert read_all(future) == read_all(log)


def test_a_log_that_begins_inside_a_batch_moves_and_nothing_is_cut_on_the_event_loop() -> None:
    disks = Disks(FaultyFileSystem(MemoryFileSystem()), log_dirs="/a,/b")
    manager = disks.start()
    log = a_log_in_a(manager, 3)
    log.increment_log_start_offset(3, "test")
    disks.settle()
    on_loop = on_the_loop(disks, manager, "rename", "truncate", "unlink", "sync")
    future = begin_move(manager, log)
    name = future.directory
    on_loop().clear()  # it was created
    disks.background.advance(100)
    assert manager.get(T0) is future
    assert (offsets(future), read_all(future)) == ((3, 6, 6), read_all(log))
    assert on_loop() == [name, log.directory.partition(".")[0]]


@pytest.mark.parametrize("what", ["the move is called off", "the log is cut"])
def test_what_happens_while_a_log_begins_lower_counts(what: str) -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    log = a_log_in_a(manager, 3)
    log.increment_log_start_offset(3, "test")
    future = begin_move(manager, log)
    while not (future.truncations.current is not None and future.log_end_offset == 2):
        step(disks)
    if what == "the log is cut":
        log.truncations.truncate_to(4)
    else:
        manager.moves.stop(T0)
    disks.background.advance(2000)
    if what == "the log is cut":
        assert manager.get(T0) is future
        assert (read_all(future), future.log_end_offset) == (read_all(log), 4)
    else:
        assert (future.log_start_offset, future.log_end_offset) == (2, 2)


def test_a_leader_epoch_without_records_moves_too() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    log = a_log_in_a(manager, 1)
    log.on_new_leader_epoch(7)
    future = begin_move(manager, log)
    disks.settle()
    assert future.leader_epochs.entries == [(0, 0), (7, 2)]
    assert disks.filesystem.read_file("/b/topic-0/leader-epoch-checkpoint") == b"0\n2\n0 0\n7 2\n"


def test_a_log_that_is_flushed_with_every_append_moves_without_a_sync_on_the_event_loop() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    disks = Disks(filesystem, log_dirs="/a,/b")
    disks.makes_topic_ids_durable_at_once = False
    disks.topics["topic"] = dict(topic(flush_messages=1))
    manager = disks.start()
    log = a_log_in_a(manager, 3)
    disks.settle()
    assert log.recovery_point == log.log_end_offset
    on_loop = on_the_loop(disks, manager, "sync", "sync_directory")
    future = begin_move(manager, log)
    for _ in range(40):
        now = manager.get(T0)
        assert now is not None
        append(now, a_batch(2), epoch=1)
        disks.background.advance(3)
    assert manager.get(T0) is future
    disks.background.advance(100)
    assert future.recovery_point == future.log_end_offset
    assert on_loop() == []


def test_what_was_flushed_is_flushed_in_the_new_directory_before_it_serves() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    log = a_log_in_a(manager)
    log.flush()
    append(log)
    begin_move(manager, log)
    disks.settle()
    disks.crash(manager)
    assert isinstance(disks.filesystem, MemoryFileSystem)
    for seed in range(5):
        found = Disks(disks.filesystem.after_power_cut(seed), log_dirs="/a,/b").start().get(T0)
        assert found is not None
        assert found.log_dir == "/b"
        assert found.log_end_offset >= 10


def test_a_flush_that_fails_though_the_disk_did_not_refuse_it_is_tried_again_and_the_move_ends() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    log = a_log_in_a(manager)
    log.flush()
    future = begin_move(manager, log)
    background = disks.background
    while not future.flushes.plans:
        step(disks)
    _, _, then = background.work.pop()
    then(MemoryError())
    background.advance(900)
    assert manager.get(T0) is log
    background.advance(200)
    assert manager.get(T0) is future


def test_a_move_that_ends_in_an_error_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start(num_replica_alter_log_dirs_threads=1)
    log = a_log_in_a(manager)
    replace = manager.future_logs.replace_current

    def fail_once(topic_partition: TopicPartition) -> PartitionLog:
        manager.future_logs.replace_current = replace  # type: ignore[method-assign]  # a fault of this broker
        raise MemoryError

    manager.future_logs.replace_current = fail_once  # type: ignore[method-assign]  # as above
    future = begin_move(manager, log)
    disks.settle()
    assert manager.get(T0) is log
    assert "topic-0: the move to /b failed" in caplog.text
    disks.background.advance(1000)
    assert manager.get(T0) is future


def test_the_throttle_spreads_the_copy_over_time() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    throttle(disks, 100_000)
    log = a_log_in_a(manager, 0)
    for _ in range(10):
        append(log, a_batch(1, value_bytes=100_000))
    future = begin_move(manager, log)
    disks.background.advance(0)
    assert manager.get(T0) is log
    disks.background.advance(5_000)
    assert 2 <= future.log_end_offset <= 8
    disks.background.advance(10_000)
    assert manager.get(T0) is future


def test_a_throttle_of_nothing_stops_the_copy() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    throttle(disks, 0)
    future = begin_move(manager, a_log_in_a(manager))
    disks.background.advance(100_000)
    assert future.log_end_offset == 0


def test_as_many_copies_as_there_are_threads_are_under_way() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start(num_replica_alter_log_dirs_threads=2)
    for index in range(5):
        log = manager.get_or_create(TopicPartition("topic", index), is_new=True, log_dir="/a")
        append(log, a_batch(1, value_bytes=300_000))
        append(log)
        a_future_log(manager, log, "/b")
        manager.moves.start(log.topic_partition)
    assert [name for name, _, _ in disks.background.work].count("alter-log-dirs") == 2
    disks.settle()
    assert {log.log_dir for log in manager.all_logs()} == {"/b"}


def test_a_move_that_is_called_off_leaves_the_log_where_it_is() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    log = a_log_in_a(manager, 0)
    append(log, a_batch(1, value_bytes=300_000))
    append(log)
    begin_move(manager, log)
    manager.moves.stop(T0)
    manager.future_logs.delete(T0)
    disks.settle()
    assert (manager.get(T0), manager.get(T0, future=True)) == (log, None)
    assert T0 not in manager.moves
    assert kinds_in(disks, "/b") == [DirectoryKind.DELETE]


@pytest.mark.parametrize(("failing", "where"), [("/b", "/a"), ("/a", None)])
def test_a_directory_that_fails_ends_the_move(failing: str, where: str | None, caplog: pytest.LogCaptureFixture) -> None:
    disks = Disks(FaultyFileSystem(MemoryFileSystem()), log_dirs="/a,/b")
    manager = disks.start()
    log = a_log_in_a(manager, 0)
    append(log, a_batch(1, value_bytes=300_000))
    append(log)
    begin_move(manager, log)
    manager.handle_log_dir_failure(failing, "test")
    disks.settle()
    found = manager.get(T0)
    assert (found and found.log_dir) == where
    assert T0 not in manager.moves
    assert f"the move from /a to /b ends, because {failing} failed" in caplog.text


def test_a_full_disk_ends_the_move_and_the_log_serves_on(caplog: pytest.LogCaptureFixture) -> None:
    faulty = FaultyFileSystem(MemoryFileSystem())
    disks = Disks(faulty, log_dirs="/a,/b")
    manager = disks.start()
    log = a_log_in_a(manager)
    future = a_future_log(manager, log, "/b")
    disks.settle()
    faulty.error_number = errno.ENOSPC
    faulty.fails_if = lambda name, path: name == "pwrite" and path.startswith("/b/")
    manager.moves.start(T0)
    disks.settle()
    assert manager.offline_log_dirs == ["/b"]
    assert "topic-0: the move from /a to /b ends, because /b failed" in caplog.text
    assert manager.get(T0) is log
    assert future.is_closed
    append(log)
    with pytest.raises(LogDirFailure, match="future log"):
        a_future_log(manager, log, "/b")


def test_a_flush_that_fails_as_the_last_batch_is_copied_ends_the_move_and_others_go_on() -> None:
    faulty = FaultyFileSystem(MemoryFileSystem())
    disks = Disks(faulty, log_dirs="/a,/b,/c")
    disks.topics["topic"] = dict(topic(flush_messages=1, index_interval_bytes=1))
    manager = disks.start(num_replica_alter_log_dirs_threads=1)
    log = a_log_in_a(manager, 2)
    other = manager.get_or_create(TopicPartition("topic", 1), is_new=True, log_dir="/a")
    append(a_future_log(manager, log, "/b"), a_batch(2))  # so that the index has an entry when the rest comes
    a_future_log(manager, other, "/c")
    disks.settle()
    faulty.fails_if = lambda name, path: name == "pwrite" and path.startswith("/b/topic") and path.endswith("index")
    for each in (log, other):
        manager.moves.start(each.topic_partition)
    disks.settle()
    assert manager.offline_log_dirs == ["/b"]
    found = [manager.get(each.topic_partition) for each in (log, other)]
    assert [each and each.log_dir for each in found] == ["/a", "/c"]


def test_a_log_is_created_in_the_directory_that_was_asked_for() -> None:
    disks = Disks(log_dirs="/a,/b,/c")
    manager = disks.start()
    manager.future_logs.prefer(T0, "/c")
    assert manager.get_or_create(T0, is_new=True).log_dir == "/c"
    assert manager.directories.preferred == {}
    manager.future_logs.prefer(T0, "/c")
    assert manager.directories.preferred == {}
    with pytest.raises(LogDirNotFound, match=r"Log dir 'c' is not found in the config\."):
        manager.directories.check_known("c")


def test_a_name_that_leaves_no_room_for_the_future_one_cannot_move() -> None:
    assert may_have_future(TopicPartition("x" * 213, 0))
    assert not may_have_future(TopicPartition("x" * 214, 0))


@pytest.mark.parametrize("seed", range(number_of(10)))
def test_any_history_of_a_move_ends_with_the_same_log(seed: int) -> None:
    rng = Random(seed)
    disks = Disks(log_dirs="/a,/b")
    disks.topics["topic"] = {"segment.bytes": "500000"}
    manager = disks.start()
    throttle(disks, rng.choice([50_000, 10**6, 2**63 - 1]))
    log = a_log_in_a(manager, 3)
    begin_move(manager, log)
    epoch = 0
    for _ in range(60):
        current = manager.get(T0)
        assert current is not None
        match rng.randrange(8):
            case 0:
                epoch += 1
                current.truncations.truncate_to(rng.choice([segment.base_offset for segment in current.segments]))
                current.on_new_leader_epoch(epoch)
                manager.moves.start(T0)
            case 1:
                current.update_high_watermark(current.log_end_offset)
                current.increment_log_start_offset(rng.randint(current.log_start_offset, current.high_watermark), "test")
            case 2:
                current.roll() if current.segments.active.size else None
            case 3 | 4:
                disks.background.advance(rng.choice([0, 10, 1000]))
            case _:
                for _ in range(rng.randint(1, 4)):
                    append(current, a_batch(rng.randint(1, 3), value_bytes=rng.choice([10, 1000, 90_000])), epoch=epoch)
        if manager.get(T0) is not current and T0 not in manager.moves:
            now = manager.get(T0)
            assert now is not None
            assert (now.log_start_offset, now.log_end_offset) == (current.log_start_offset, current.log_end_offset)
            assert read_all(now) == read_all(current)
            begin_move(manager, now, "/a" if now.log_dir == "/b" else "/b")
