"""All logs of a broker over starts, stops and crashes."""

import sys

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.directory_names import DirectoryKind, parse_directory_name, suffixed_name
from ottla.storage.disk.start_errors import ForeignDirectory, LogDirectoryLocked, NoUsableLogDirectory
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager import log_closing
from ottla.storage.manager.log_directories import CLEAN_SHUTDOWN_FILE
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, offsets, topic
from tests.support.logs import a_log, append, read_all

T0 = TopicPartition("topic", 0)
T1 = TopicPartition("topic", 1)
TOPIC_ID = bytes(range(16))
MINUTE_MS = 60_000


def test_a_clean_stop_leaves_logs_that_open_without_recovery(caplog: pytest.LogCaptureFixture) -> None:
    disks = Disks()
    manager = disks.start()
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True)
    append(log, a_batch(3))
    log.update_high_watermark(2)
    manager.shutdown(broker_epoch=7)
    assert disks.filesystem.read_file(f"/data/{CLEAN_SHUTDOWN_FILE}") == b'{"version":0,"brokerEpoch":7}'
    caplog.set_level("INFO")
    again = disks.start()
    found = again.get(T0)
    assert found is not None
    assert offsets(found) == (0, 2, 3)
    assert (found.topic_id, found.latest_epoch, found.recovery_point) == (TOPIC_ID, 0, 3)
    assert "closed properly" in caplog.text
    assert not disks.filesystem.exists(f"/data/{CLEAN_SHUTDOWN_FILE}")


def test_a_crash_loses_nothing_that_was_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    disks = Disks()
    manager = disks.start()
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True)
    append(log, a_batch(3), epoch=4)
    written = read_all(log)
    disks.settle()
    disks.crash(manager)
    found = disks.start().get(T0)
    assert found is not None
    assert read_all(found) == written
    assert (found.log_end_offset, found.recovery_point, found.latest_epoch, found.topic_id) == (3, 0, 4, TOPIC_ID)
    assert "after a crash" in caplog.text


def test_epochs_that_no_thread_had_written_are_found_in_the_batches() -> None:
    disks = Disks()
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    for epoch in (0, 0, 3, 9):
        append(log, a_batch(2), epoch=epoch)
    assert not disks.filesystem.exists("/data/topic-0/leader-epoch-checkpoint")
    disks.crash(manager)
    found = disks.start().get(T0)
    assert found is not None
    assert found.leader_epochs.entries == [(0, 0), (3, 4), (9, 6)]


def test_a_start_after_a_crash_syncs_nothing_for_logs_that_are_as_they_were() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    disks = Disks(filesystem)
    manager = disks.start()
    for partition in range(20):
        append(manager.get_or_create(TopicPartition("topic", partition), is_new=True), a_batch(3), epoch=4)
    disks.settle()
    disks.crash(manager)
    calls = disks.watch("sync", "sync_directory")
    manager = disks.start()
    disks.settle()
    assert {log.latest_epoch for log in manager.all_logs()} == {4}
    assert [path for path in calls if "topic-" in path] == []


def test_a_clock_that_is_set_back_by_years_loses_nothing_and_stops_nothing() -> None:
    disks = Disks()
    disks.topics["topic"] = dict(topic(retention_ms=3_600_000, segment_ms=60_000, flush_ms=5000))
    manager = disks.start(log_flush_scheduler_interval_ms=1000)
    log = manager.get_or_create(TopicPartition("topic", 0), is_new=True)
    now_ms = disks.clock.now_ms()
    for _ in range(3):
        append(log, a_batch(timestamps=[now_ms]))
    log.update_high_watermark(log.log_end_offset)
    disks.clock.set_back(5 * 365 * 24 * 3_600_000)
    append(log, a_batch(timestamps=[disks.clock.now_ms()]))
    append(log, a_batch(timestamps=[-1]))
    manager.flush_dirty_logs()
    disks.settle()
    assert log.recovery_point == 0  # no time has passed
    disks.clock.move(5000)
    manager.check_retention()
    manager.flush_dirty_logs()
    manager.remove_expired_producers()
    disks.settle()
    assert offsets(log) == (0, 3, 5)
    assert log.recovery_point == 5
    content = read_all(log)
    manager.shutdown()
    manager = disks.start()
    found = manager.get(TopicPartition("topic", 0))
    assert found is not None
    assert read_all(found) == content
    assert append(found).first_offset == 5


def test_a_crash_while_loading_counts_as_a_crash() -> None:
    disks = Disks()
    disks.start().shutdown()
    manager = disks.a_manager()
    manager.open()
    manager.load()
    disks.crash(manager)
    assert not disks.start().directories["/data"].had_clean_shutdown


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_many_logs_are_synced_together_and_a_stop_that_fails_is_no_clean_one(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_closing, "MANY_SEGMENTS", 3)
    for fail_at in range(part, 120, 3):
        inner = MemoryFileSystem()
        filesystem = FaultyFileSystem(inner)
        disks = Disks(filesystem)
        manager = disks.start()
        for partition in range(5):
            append(manager.get_or_create(TopicPartition("topic", partition), is_new=True), a_batch(3))
        disks.settle()
        calls = disks.watch("sync", "sync_everything")
        filesystem.calls = 0
        filesystem.fail_at = fail_at or None
        manager.shutdown()
        if not fail_at:
            assert calls.count("/data") == 2
            assert not [path for path in calls if "topic-" in path]
        inner.release_locks()
        found = inner.after_power_cut(fail_at)
        again = Disks(found)
        manager = again.start()
        if manager.directories["/data"].had_clean_shutdown or not fail_at:
            assert {log.log_end_offset for log in manager.all_logs()} == {3}
            assert len(list(manager.all_logs())) == 5
        assert all(log.log_end_offset in (0, 3) for log in manager.all_logs())


def test_nothing_is_marked_clean_when_a_log_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    inner = MemoryFileSystem()
    disks = Disks(FaultyFileSystem(inner))
    assert isinstance(disks.filesystem, FaultyFileSystem)
    manager = disks.start()
    append(manager.get_or_create(T0, is_new=True), a_batch())
    disks.settle()
    disks.filesystem.fails_if = lambda name, path: path.endswith(".log")
    manager.shutdown()
    assert not inner.exists(f"/data/{CLEAN_SHUTDOWN_FILE}")
    assert "not closed properly" in caplog.text


def test_a_partition_is_created_where_the_fewest_are() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    for partition in range(4):
        manager.get_or_create(TopicPartition("topic", partition), is_new=True)
    manager.get_or_create(TopicPartition("topic", 9), is_new=True, log_dir="/b")
    manager.get_or_create(TopicPartition("topic", 10), is_new=True)
    places = {log.topic_partition.partition: log.log_dir for log in manager.all_logs()}
    assert places == {0: "/a", 1: "/b", 2: "/a", 3: "/b", 9: "/b", 10: "/a"}


def test_a_log_is_created_once_and_learns_its_topic_id() -> None:
    disks = Disks()
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    assert manager.get_or_create(T0, TOPIC_ID) is log
    assert manager.get_or_create(T0, bytes(15) + b"x").topic_id == TOPIC_ID
    assert (manager.get(T0), manager.get(T1)) == (log, None)


def test_a_deleted_log_is_out_of_sight_at_once_and_off_the_disk_later() -> None:
    disks = Disks()
    manager = disks.start(log_segment_delete_delay_ms=1000)
    append(manager.get_or_create(T0, is_new=True), a_batch())
    manager.delete(T0)
    assert manager.get(T0) is None
    (left,) = [name for name in disks.filesystem.list_directory("/data") if "topic" in name]
    parsed = parse_directory_name(left)
    assert parsed == (T0, DirectoryKind.DELETE)
    again = manager.get_or_create(T0, is_new=True)
    assert again.log_end_offset == 0
    disks.background.advance(1000)
    assert [name for name in disks.filesystem.list_directory("/data") if "topic" in name] == ["topic-0"]
    manager.delete(T1)


def test_what_a_stop_left_of_a_deletion_goes_at_the_next_start() -> None:
    disks = Disks()
    manager = disks.start()
    append(manager.get_or_create(T0, is_new=True), a_batch())
    manager.delete(T0)
    manager.shutdown()
    again = disks.start()
    assert again.get(T0) is None
    disks.background.advance(MINUTE_MS)
    assert not any("topic" in name for name in disks.filesystem.list_directory("/data"))


def test_a_deleted_partition_is_in_no_checkpoint() -> None:
    disks = Disks()
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    for _ in range(2):
        append(log, a_batch())
    log.update_high_watermark(2)
    log.increment_log_start_offset(1, "test")
    disks.background.advance(2 * MINUTE_MS)
    assert disks.filesystem.read_file("/data/log-start-offset-checkpoint") == b"0\n1\ntopic 0 1\n"
    manager.delete(T0)
    disks.settle()
    assert disks.filesystem.read_file("/data/log-start-offset-checkpoint") == b"0\n0\n"
    assert disks.filesystem.read_file("/data/recovery-point-offset-checkpoint") == b"0\n0\n"


def test_a_stray_replica_is_kept_but_not_served() -> None:
    disks = Disks()
    manager = disks.start()
    append(manager.get_or_create(T0, is_new=True), a_batch())
    manager.delete(T0, is_stray=True)
    disks.background.advance(MINUTE_MS * 5)
    manager.shutdown()
    again = disks.start()
    assert again.get(T0) is None
    assert any(name.endswith("-stray") for name in disks.filesystem.list_directory("/data"))


def test_offsets_survive_a_crash_by_their_checkpoints() -> None:
    disks = Disks()
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    for _ in range(5):
        append(log, a_batch(2))
    log.update_high_watermark(8)
    log.increment_log_start_offset(4, "test")
    log.flush()
    disks.background.advance(2 * MINUTE_MS)
    manager.checkpoint_high_watermarks()
    disks.settle()
    disks.crash(manager)
    again = disks.start()
    found = again.get(T0)
    assert found is not None
    assert offsets(found) == (4, 8, 10)
    assert found.recovery_point == 10


def test_a_recovery_point_is_written_after_the_epochs_below_it() -> None:
    disks = Disks(FaultyFileSystem(MemoryFileSystem()))
    renamed = disks.watch("rename")
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    manager.checkpoint_recovery_points()
    append(log, a_batch(), epoch=0)
    log.flush()
    disks.settle()
    assert renamed[-2:] == ["/data/topic-0/leader-epoch-checkpoint.tmp", "/data/recovery-point-offset-checkpoint.tmp"]


def test_a_topics_new_configuration_reaches_its_log() -> None:
    disks = Disks()
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    disks.topics["topic"] = dict(topic(segment_bytes=2000))
    manager.update_config(log, disks.topic_config("topic"))
    assert log.segments.settings.segment_bytes == 2000


# ---- what is in the directories

NAMES = [
    ("topic-0", (T0, DirectoryKind.CURRENT)),
    ("a-b.c_d-12", (TopicPartition("a-b.c_d", 12), DirectoryKind.CURRENT)),
    ("topic-0.0123456789abcdef0123456789abcdef-delete", (T0, DirectoryKind.DELETE)),
    ("topic-0.0123-future", (T0, DirectoryKind.FUTURE)),
    ("topic-0.0123-stray", (T0, DirectoryKind.STRAY)),
    ("t.x-0.0123-delete", (TopicPartition("t.x", 0), DirectoryKind.DELETE)),
    ("lost+found", None),
    ("topic", None),
    ("topic-", None),
    ("-0", None),
    ("topic-x", None),
    ("topic--1", (TopicPartition("topic-", 1), DirectoryKind.CURRENT)),
    ("topic-0-delete", None),
    ("topic-0.-delete", None),
]


@pytest.mark.parametrize(("name", "parsed"), NAMES)
def test_directory_names_are_kafkas(name: str, parsed: tuple[TopicPartition, DirectoryKind] | None) -> None:
    assert parse_directory_name(name) == parsed


def test_the_name_of_a_deleted_partition_fits_every_file_system() -> None:
    long = TopicPartition("t" * 249, 12345)
    name = suffixed_name(long, DirectoryKind.DELETE, "f" * 32)
    assert len(name) == 255
    parsed = parse_directory_name(name)
    assert parsed is not None
    assert parsed[0].partition == 12345


def test_a_foreign_directory_stops_the_start_and_frees_the_lock() -> None:
    disks = Disks()
    disks.filesystem.make_directory("/data/lost+found")
    with pytest.raises(ForeignDirectory, match=r"^/data/lost\+found: "):
        disks.start()
    disks.filesystem.remove_directory("/data/lost+found")
    disks.start()


def test_a_start_that_failed_leaves_everything_to_the_next_one() -> None:
    disks = Disks()
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    append(log, a_batch(3))
    log.update_high_watermark(3)
    log.increment_log_start_offset(2, "test")
    manager.shutdown()
    disks.filesystem.make_directory("/data/zzz")
    failed = disks.a_manager()
    failed.open()
    with pytest.raises(ForeignDirectory):
        failed.load()
    failed.shutdown()
    disks.filesystem.remove_directory("/data/zzz")
    again = disks.start()
    found = again.get(T0)
    assert found is not None
    assert offsets(found) == (2, 3, 3)
    assert again.directories["/data"].had_clean_shutdown


def test_files_and_directories_that_belong_there_are_ignored() -> None:
    disks = Disks()
    disks.filesystem.make_directory("/data/remote-log-index-cache")
    disks.filesystem.make_directory("/data/__cluster_metadata-0")
    disks.filesystem.open("/data/notes.txt", create=True)
    assert len(disks.start()) == 0


def test_a_future_log_waits_beside_the_current_one() -> None:
    disks = Disks(log_dirs="/a,/b")
    disks.filesystem.make_directory("/a/topic-0")
    disks.filesystem.make_directory("/b/topic-0.abc-future")
    manager = disks.start()
    current, future = manager.get(T0), manager.get(T0, future=True)
    assert current is not None
    assert future is not None
    assert (current.log_dir, future.log_dir) == ("/a", "/b")
    append(current, a_batch(3))
    replicas = {each.path: [(r.size_bytes > 0, r.offset_lag, r.is_future) for r in each.replicas] for each in manager.describe_log_dirs()}
    assert replicas == {"/a": [(True, 0, False)], "/b": [(False, 3, True)]}


def test_a_second_manager_finds_the_directory_locked() -> None:
    disks = Disks()
    manager = disks.start()
    with pytest.raises(LogDirectoryLocked):
        disks.start()
    manager.shutdown()
    disks.start()


# ---- disks that fail


def test_a_garbage_checkpoint_takes_its_directory_offline(caplog: pytest.LogCaptureFixture) -> None:
    disks = Disks(log_dirs="/a,/b")
    disks.filesystem.make_directory("/a")
    disks.filesystem.open("/a/recovery-point-offset-checkpoint", create=True).write(b"0\n1\nrubbish\n")
    manager = disks.start()
    assert manager.offline_log_dirs == ["/a"]
    assert "/a/recovery-point-offset-checkpoint: line 3: 'rubbish'" in caplog.text


def test_a_start_without_any_directory_that_works_is_refused() -> None:
    disks = Disks()
    disks.filesystem.make_directory("/data")
    disks.filesystem.open("/data/recovery-point-offset-checkpoint", create=True).write(b"rubbish")
    with pytest.raises(NoUsableLogDirectory):
        disks.start()


def two_directories() -> tuple[Disks, FaultyFileSystem]:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    return Disks(filesystem, log_dirs="/a,/b"), filesystem


def test_the_logs_of_a_failed_directory_are_gone_and_the_others_stay() -> None:
    disks, filesystem = two_directories()
    manager = disks.start()
    on_a, on_b = (manager.get_or_create(each, is_new=True) for each in (T0, T1))
    told: list[str] = []

    def on_failure(log_dir: str, reason: str) -> None:
        told.append(log_dir)
        assert reason.startswith("/a/")
        manager.handle_log_dir_failure(log_dir, reason)

    manager.on_log_dir_failure = on_failure
    disks.settle()
    filesystem.fails_if = lambda name, path: path.startswith("/a")
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks()
    disks.settle()
    assert told == ["/a"]
    assert (manager.get(T0), manager.get(T1)) == (None, on_b)
    assert on_a.is_closed
    assert manager.offline_log_dirs == ["/a"]
    with pytest.raises(LogDirFailure):
        manager.get_or_create(T0)
    assert manager.get_or_create(T0, is_new=True).log_dir == "/b"
    with pytest.raises(LogDirFailure):
        manager.delete(TopicPartition("elsewhere", 0))
    described = {each.path: (each.is_live, each.total_bytes > 0, len(list(each.replicas))) for each in manager.describe_log_dirs()}
    assert described == {"/a": (False, False, 0), "/b": (True, True, 2)}
    manager.handle_log_dir_failure("/a")


def test_a_new_partition_goes_where_it_can_be_created() -> None:
    disks, filesystem = two_directories()
    manager = disks.start()
    filesystem.fails_if = lambda name, path: path.startswith("/a/")
    assert manager.get_or_create(T0, is_new=True).log_dir == "/b"
    assert manager.offline_log_dirs == ["/a"]


def test_the_last_directory_that_fails_stops_the_broker() -> None:
    disks = Disks()
    manager = disks.start()
    stopped: list[bool] = []
    manager.on_no_log_dir = lambda: stopped.append(True)
    manager.handle_log_dir_failure("/data")
    assert stopped == [True]
    with pytest.raises(LogDirFailure, match="no log directory is left"):
        manager.get_or_create(T0, is_new=True)


@pytest.mark.parametrize("needs_all", [False, True])
def test_the_first_directory_that_fails_stops_a_broker_under_an_old_controller(needs_all: bool) -> None:
    manager = two_directories()[0].start()
    stopped: list[bool] = []
    manager.on_no_log_dir = lambda: stopped.append(True)
    manager.needs_all_directories = needs_all
    manager.handle_log_dir_failure("/a")
    assert stopped == [True] * needs_all


def test_writes_of_a_deleted_partition_are_no_disk_failure() -> None:
    disks = Disks()
    manager = disks.start()
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True)
    disks.background.timers, timers = [], disks.background.timers
    for timer in [each for each in timers if each[2] == "deferred-writes"]:
        timer[4]()
    manager.delete(T0)
    disks.background.run_work()
    assert log.topic_id == TOPIC_ID
    assert manager.offline_log_dirs == []


def test_a_log_that_nothing_happens_to_has_no_large_container_for_it() -> None:
    log = a_log()
    sizes = {name: sys.getsizeof(getattr(log, name)) for name in PartitionLog.__slots__}
    assert max(sizes.values()) < 300, sizes  # an empty deque has 600 bytes, and there are 10,000 logs
