"""A partition in two log directories: one without records is deleted, two with records stop the start."""

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.directory_names import DirectoryKind, parse_directory_name
from ottla.storage.disk.start_errors import DuplicateLog
from tests.support.batches import a_batch
from tests.support.log_manager import Disks, a_future_log
from tests.support.logs import append

T0 = TopicPartition("topic", 0)
TOPIC_ID = bytes(range(16))


def two_logs_of_a_partition(records_in: tuple[str, ...]) -> Disks:
    """Two log directories after a stop, each with a log of T0: three records in those named, none in the others."""
    disks = Disks(log_dirs="/a,/b")
    for log_dir in ("/a", "/b"):
        manager = disks.start()
        if log_dir == "/b":
            disks.filesystem.rename("/a/topic-0", "/kept-0")
            manager.shutdown()
            manager = disks.start()
        log = manager.get_or_create(T0, TOPIC_ID, is_new=True, log_dir=log_dir)
        if log_dir in records_in:
            append(log, a_batch(3))
        manager.shutdown()
    disks.filesystem.rename("/kept-0", "/a/topic-0")
    return disks


def test_a_partition_in_two_directories_stops_the_start() -> None:
    disks = two_logs_of_a_partition(records_in=("/a", "/b"))
    with pytest.raises(DuplicateLog, match=r"^topic-0 is in /./topic-0 and in /./topic-0\."):
        disks.start()


@pytest.mark.parametrize("full", ["/a", "/b"])
def test_an_empty_log_beside_one_with_records_is_deleted(full: str, caplog: pytest.LogCaptureFixture) -> None:
    disks = two_logs_of_a_partition(records_in=(full,))
    manager = disks.start()
    kept = manager.get(T0)
    assert kept is not None
    assert (kept.log_dir, kept.log_end_offset) == (full, 3)
    empty = "/b" if full == "/a" else "/a"
    assert f"{empty}/topic-0 is empty and is deleted; the log in {full}/topic-0 is kept" in caplog.text
    assert {each.path: each.log_count for each in manager.directories.live} == {full: 1, empty: 0}
    left = [
        parse_directory_name(name) for name in disks.filesystem.list_directory(empty) if disks.filesystem.is_directory(f"{empty}/{name}")
    ]
    assert left == [(T0, DirectoryKind.DELETE)]
    manager.shutdown()
    again = disks.start().get(T0)
    assert again is not None
    assert (again.log_dir, again.log_end_offset) == (full, 3)


def test_of_two_empty_logs_one_is_kept() -> None:
    disks = two_logs_of_a_partition(records_in=())
    assert disks.start().get(T0) is not None
    assert sum(disks.filesystem.exists(f"{each}/topic-0") for each in ("/a", "/b")) == 1


def test_of_two_copies_the_longer_one_is_kept() -> None:
    """A killed broker leaves both if its last move was to another directory than the one before."""
    disks = Disks(log_dirs="/a,/b,/c")
    manager = disks.start()
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True, log_dir="/a")
    append(log, a_batch(3))
    append(a_future_log(manager, log, "/b"), a_batch(3))
    manager.shutdown()
    (copy,) = [name for name in disks.filesystem.list_directory("/b") if name.endswith("-future")]
    disks.filesystem.rename(f"/b/{copy}", f"/{copy}")
    manager = disks.start()
    log = manager.get_or_create(T0, TOPIC_ID)
    append(a_future_log(manager, log, "/c"), a_batch(1))
    manager.shutdown()
    disks.filesystem.rename(f"/{copy}", f"/b/{copy}")

    manager = disks.start()
    kept, current = manager.get(T0, future=True), manager.get(T0)
    assert kept is not None
    assert (kept.directory, kept.log_end_offset) == (f"/b/{copy}", 3)
    assert current is not None
    assert current.log_dir == "/a"
    assert {each.path: each.log_count for each in manager.directories.live} == {"/a": 1, "/b": 1, "/c": 0}
    assert not [name for name in disks.filesystem.list_directory("/c") if name.endswith("-future")]
