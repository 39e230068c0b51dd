"""What judges a soak on slow disks finds each kind of wrong, and nothing where nothing is wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    OffsetCheckpoint,
)
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.disk.partition_metadata import write_topic_id
from tests.soak.at_rest import bad_lines, badly_stopped, foreign_names
from tests.soak.slow_topics import Life, key_of
from tests.support.filesystems import MemoryFileSystem
from tests.support.history import Place, Record
from tests.support.slow_disk import Delays, SlowFileSystem

T0 = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
END = 5

# ---- topics


def a_life(configs: dict[str, str] | None = None, *, records: int = END) -> Life:
    """Of a topic with one partition, and so many acknowledged records."""
    life = Life("t", TOPIC_ID, 1, configs or {})
    for _ in range(records):
        life.acknowledged(0, life.records(0, 1), life.ends[0])
    return life


def read(life: Life, *found: tuple[int, int]) -> list[str]:
    """A reader of all that is there finds (number, offset); the kinds of what is wrong."""
    for number, offset in found:
        life.history.polled("reader", Record("t-0", number), Place(0, offset))
    life.history.came_to_the_end("reader")
    return sorted({line.partition(":")[0] for line in life.history.violations()})


def all_but(*missing: int) -> list[tuple[int, int]]:
    return [(number, number) for number in range(END) if number not in missing]


def test_a_topic_that_is_as_it_should_be_is_right() -> None:
    assert read(a_life(), *all_but()) == []


@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        (all_but(4), ["lost"]),
        (all_but(0), ["lost"]),
        (all_but(2), ["gap", "lost"]),
        ([*all_but(), (4, 5)], ["duplicate"]),
        ([(0, 0), (2, 1), (1, 2), (3, 3), (4, 4)], ["misplaced", "reordered"]),
        ([*all_but(), (9, 5)], ["unseen"]),
    ],
)
def test_a_record_that_is_lost_or_doubled_or_out_of_order_is_found(found: list[tuple[int, int]], kinds: list[str]) -> None:
    assert read(a_life(), *found) == kinds


def test_a_batch_that_does_not_follow_the_last_one_is_found() -> None:
    life = a_life()
    with pytest.raises(AssertionError, match="offset 7 where 5 was to come"):
        life.acknowledged(0, life.records(0, 2), 7)


def test_what_delete_records_and_retention_were_to_delete_may_be_gone_and_no_more() -> None:
    life = a_life()
    life.deleted[0] = 2
    life.starts_at(0, 3)
    assert read(life, *all_but(0, 1)) == []

    life = a_life()
    life.deleted[0] = 2
    life.starts_at(0, 3)
    assert read(life, *all_but(0, 1, 2)) == ["lost"]

    life = a_life({"retention.ms": "1"})
    life.starts_at(0, 3)
    assert read(life, *all_but(0, 1, 2)) == []


def latest_of(records: int) -> list[tuple[int, int]]:
    """The last of each key."""
    return [(number, number) for number in sorted({key_of(Record("t-0", number)): number for number in range(records)}.values())]


def test_of_a_compacted_topic_the_latest_of_each_key_has_to_be_there() -> None:
    assert read(a_life({"cleanup.policy": "compact"}, records=300), *latest_of(300)) == []
    assert "lost" in read(a_life({"cleanup.policy": "compact"}, records=300), *latest_of(300)[1:])


def test_a_topic_that_is_compacted_from_now_on_may_lose_what_it_had_before() -> None:
    life = a_life(records=300)
    life.configure({"cleanup.policy": "compact"})
    life.configure({"cleanup.policy": "delete"})
    assert read(life, *latest_of(300)) == []


# ---- logs of brokers


@pytest.mark.parametrize(
    "line",
    [
        "[2026-01-01 00:00:00,000] ERROR background task flush-log failed (broker.background)",
        "[2026-01-01 00:00:00,000] WARNING log directory /data is offline (storage.log_manager)",
    ],
)
def test_an_error_in_a_log_is_found(line: str) -> None:
    good = "[2026-01-01 00:00:00,000] INFO t-0: created in /data (storage.log_manager)\n"
    assert bad_lines(good) == []
    assert bad_lines(good + line + "\n" + good) == [line]


def test_a_stack_trace_is_found_with_what_was_logged_before_it() -> None:
    trace = ["WARNING cannot send", "Traceback (most recent call last):", '  File "a.py", line 1, in f', "ValueError: wrong"]
    assert bad_lines("\n".join(["INFO before", *trace, "INFO after"])) == trace


def test_a_broker_that_is_offline_is_no_error() -> None:
    assert bad_lines("INFO deletion of topic t is suspended: the replica of t-0 on broker 1 is offline (controller.deletion)\n") == []
    assert bad_lines("ERROR cannot follow broker 1, which is not alive, in 1 partitions: t-0 (replication.controller_requests)\n") == []


def test_a_batch_that_comes_again_after_all_was_deleted_may_stand_further_on() -> None:
    life = a_life({"retention.ms": "1"})
    life.acknowledged(0, life.records(0, 2), END + 2, was_sent_again=True)
    assert life.ends[0] == END + 4
    kept = a_life()
    with pytest.raises(AssertionError, match="offset 7 where 5"):
        kept.acknowledged(0, kept.records(0, 2), END + 2, was_sent_again=True)


# ---- directories


def a_log_dir(tmp_path: Path) -> Path:
    """Of a broker that was stopped, with one partition."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    for name in ("00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex", "leader-epoch-checkpoint"):
        (directory / name).touch()
    write_topic_id(RealFileSystem(), str(directory), TOPIC_ID)
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        OffsetCheckpoint(str(tmp_path), name, RealFileSystem()).write({T0: END})
    OffsetCheckpoint(str(tmp_path), LOG_START_OFFSET_CHECKPOINT, RealFileSystem()).write({})
    for name in (".kafka_cleanshutdown", "meta.properties", ".lock"):
        (tmp_path / name).touch()
    return tmp_path


def test_a_directory_that_is_as_it_should_be_is_right(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path)
    assert foreign_names([log_dir], {T0: TOPIC_ID}) == []
    assert badly_stopped([log_dir], {T0: END}, [T0]) == []


@pytest.mark.parametrize(
    "name",
    [
        "t-0.0123456789abcdef0123456789abcdef-delete/",
        "t-0.0123456789abcdef0123456789abcdef-future/",
        "t-1.0123456789abcdef0123456789abcdef-stray/",
        "t-1/",
        "t-0/00000000000000000000.log.deleted",
        "t-0/00000000000000000000.log.swap",
        "t-0/00000000000000000000.log.cleaned",
        "t-0/00000000000000000007.index",
        "t-0/leader-epoch-checkpoint.tmp",
        "recovery-point-offset-checkpoint.tmp",
        "somebody's",
    ],
)
def test_what_belongs_to_no_topic_is_found(tmp_path: Path, name: str) -> None:
    log_dir = a_log_dir(tmp_path)
    if name.endswith("/"):
        (log_dir / name).mkdir()
    else:
        (log_dir / name).touch()
    assert len(foreign_names([log_dir], {T0: TOPIC_ID})) == 1


def test_only_who_was_killed_may_leave_a_file_that_was_to_replace_another(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path)
    (log_dir / "t-0" / "leader-epoch-checkpoint.tmp").touch()
    (log_dir / "recovery-point-offset-checkpoint.tmp").touch()
    assert foreign_names([log_dir], {T0: TOPIC_ID}, was_killed=True) == []
    assert len(foreign_names([log_dir], {T0: TOPIC_ID})) == 2


def test_only_who_was_killed_may_have_set_aside_replicas_and_only_of_deleted_topics(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path)
    stray = log_dir / "t-0.0123456789abcdef0123456789abcdef-stray"
    stray.mkdir()
    write_topic_id(RealFileSystem(), str(stray), b"a former topic..")
    assert foreign_names([log_dir], {T0: TOPIC_ID}, was_killed=True) == []
    assert len(foreign_names([log_dir], {T0: TOPIC_ID})) == 1
    write_topic_id(RealFileSystem(), str(stray), TOPIC_ID)
    assert "was not deleted" in str(foreign_names([log_dir], {T0: TOPIC_ID}, was_killed=True))


def test_a_log_of_a_former_topic_of_that_name_is_found(tmp_path: Path) -> None:
    assert "another topic" in str(foreign_names([a_log_dir(tmp_path)], {T0: bytes(16)}))


def test_a_partition_that_stands_nowhere_or_twice_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    log_dirs = [a_log_dir(tmp_path / "a"), a_log_dir(tmp_path / "b")]
    assert "2 directories" in str(foreign_names(log_dirs, {T0: TOPIC_ID}))
    assert "0 directories" in str(foreign_names(log_dirs[:1], {T0: TOPIC_ID, TopicPartition("t", 1): TOPIC_ID}))


def _without_a_mark(log_dir: Path) -> None:
    (log_dir / ".kafka_cleanshutdown").unlink()


def _without_a_checkpoint(log_dir: Path) -> None:
    (log_dir / LOG_START_OFFSET_CHECKPOINT).unlink()


def _with_a_deleted_partition(log_dir: Path) -> None:
    OffsetCheckpoint(str(log_dir), LOG_START_OFFSET_CHECKPOINT, RealFileSystem()).write({TopicPartition("u", 0): 3})


def _without_a_partition(log_dir: Path) -> None:
    OffsetCheckpoint(str(log_dir), HIGH_WATERMARK_CHECKPOINT, RealFileSystem()).write({})


def _not_flushed(log_dir: Path) -> None:
    OffsetCheckpoint(str(log_dir), RECOVERY_POINT_CHECKPOINT, RealFileSystem()).write({T0: END - 1})


@pytest.mark.parametrize(
    "break_it", [_without_a_mark, _without_a_checkpoint, _with_a_deleted_partition, _without_a_partition, _not_flushed]
)
def test_a_stop_that_was_not_clean_is_found(tmp_path: Path, break_it: Callable[[Path], None]) -> None:
    log_dir = a_log_dir(tmp_path)
    break_it(log_dir)
    assert len(badly_stopped([log_dir], {T0: END}, [T0])) == 1


# ---- the disk


def test_calls_of_threads_wait_and_those_of_the_main_thread_do_not() -> None:
    slept: list[float] = []
    filesystem = SlowFileSystem(MemoryFileSystem(), Delays(1, chance=1.0, sleep=slept.append))

    def work() -> None:
        filesystem.make_directory("/data")
        file = filesystem.open("/data/a", create=True)
        file.write(b"written")
        file.sync()

    work()
    assert not slept
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(slept) == 8, "four calls, before and behind each"
    assert max(slept) <= 0.03
