"""No record gets into a log whose topic id a power cut might take, or it might be served as one of a later topic of that name."""

import random
from collections.abc import Callable

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.leader.completion import complete_and_append
from ottla.replication.leader.partition import Partition
from ottla.storage.disk.partition_metadata import encode_topic_id, read_topic_id
from ottla.storage.errors import LogDirFailure, TopicIdNotDurable
from ottla.storage.log.origins import CLIENT, COORDINATOR, REPLICATION
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.manager.new_logs import NewLog
from tests.support.batches import a_batch, a_run
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, a_future_log, topic
from tests.support.logs import T0, append, follow, read_all
from tests.support.replicas import TOPIC_ID, Replicas, state

OTHER_ID = b"id of another..."
FIRST_RECORD = ("write", "pwrite")
DURABLE = [
    ("sync", "/data/topic-0/partition.metadata.tmp"),
    ("rename", "/data/topic-0/partition.metadata.tmp"),
    ("sync_directory", "/data/topic-0"),
]


def disks_on(filesystem: MemoryFileSystem | FaultyFileSystem, log_dirs: str = "/data") -> Disks:
    disks = Disks(filesystem, log_dirs)
    disks.makes_topic_ids_durable_at_once = False
    disks.topics["topic"] = dict(topic(flush_messages=1))
    return disks


def a_new_log(manager: LogManager) -> PartitionLog:
    return manager.get_or_create(T0, TOPIC_ID, is_new=True)


def produce(log: PartitionLog) -> None:
    append(log, a_batch(2))


def replicate(log: PartitionLog) -> None:
    follow(log, a_batch(2), 0)


@pytest.mark.parametrize("append_some", [produce, replicate])
@pytest.mark.parametrize("is_killed_before", [False, True], ids=["same process", "killed in between"])
def test_after_a_power_cut_no_record_of_a_deleted_topic_is_in_the_next_one_of_its_name(
    append_some: Callable[[PartitionLog], None], is_killed_before: bool
) -> None:
    kept = 0
    for seed in range(20):
        memory = MemoryFileSystem()
        disks = disks_on(memory)
        manager = disks.start()
        log = a_new_log(manager)
        if is_killed_before:
            disks.settle()
            memory.nodes["/data/topic-0/partition.metadata"].durable = b""  # the process that wrote it was killed before the sync
            disks.crash(manager)
            disks = disks_on(memory)
            log = disks.start().get_or_create(T0, TOPIC_ID)
        append_some(log)
        if random.Random(seed).random() < 0.5:
            log.flush()
        next_start = disks_on(memory.after_power_cut(seed)).start()
        found = next_start.get_or_create(T0, OTHER_ID)
        assert found.topic_id == TOPIC_ID or not read_all(found)
        kept += bool(read_all(found))
    assert kept


def calls_until_the_first_record(disks: Disks, append_some: Callable[[], object]) -> list[tuple[str, str]]:
    """What is asked of the disk until a batch is in a `.log` file, as far as that is about the topic's id."""
    assert isinstance(disks.filesystem, FaultyFileSystem)
    calls: list[tuple[str, str]] = []

    def note(name: str, path: str) -> bool:
        if (name, path) in DURABLE or (name in FIRST_RECORD and path.endswith(".log")):
            calls.append((name, path))
        return False

    disks.filesystem.fails_if = note
    append_some()
    disks.filesystem.fails_if = None
    return calls


@pytest.mark.parametrize("append_some", [produce, replicate])
def test_the_id_is_synced_before_the_first_append_and_not_before_the_second(append_some: Callable[[PartitionLog], None]) -> None:
    disks = disks_on(FaultyFileSystem(MemoryFileSystem()))
    log = a_new_log(disks.start())
    *before, (name, path) = calls_until_the_first_record(disks, lambda: append_some(log))
    assert before == DURABLE
    assert (name in FIRST_RECORD, path) == (True, log.segments.active.path)
    if append_some is produce:
        assert not set(DURABLE) & set(calls_until_the_first_record(disks, lambda: append_some(log)))
    disks.settle()
    assert read_topic_id(disks.filesystem, log.directory) == TOPIC_ID


def test_creating_two_hundred_partitions_waits_for_no_disk() -> None:
    disks = disks_on(FaultyFileSystem(MemoryFileSystem()))
    manager = disks.start()
    synced = disks.watch("sync", "sync_directory")
    for partition in range(200):
        log = manager.get_or_create(TopicPartition("topic", partition), TOPIC_ID, is_new=True)
        log.on_new_leader_epoch(0)
    assert synced == []
    disks.settle()
    assert read_topic_id(disks.filesystem, "/data/topic-199") == TOPIC_ID
    assert disks.filesystem.read_file("/data/topic-199/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert synced.count("/data") == 1
    assert len(manager) == 200


@pytest.mark.parametrize("origin", [COORDINATOR, REPLICATION])
def test_batches_of_brokers_are_refused_until_a_thread_has_synced_the_id(origin: int) -> None:
    disks = disks_on(FaultyFileSystem(MemoryFileSystem()))
    log = a_new_log(disks.start())
    on_loop = disks.watch("sync", "sync_directory")
    with pytest.raises(TopicIdNotDurable):
        log.append(a_run(a_batch(2)), 0, 0, origin)
    assert (log.log_end_offset, on_loop) == (0, [])
    disks.settle()
    log.append(a_run(a_batch(2)), 0, 0, origin)
    assert log.log_end_offset == 2


def test_an_empty_log_that_a_crash_left_has_its_id_synced_only_when_something_is_appended() -> None:
    disks = disks_on(FaultyFileSystem(MemoryFileSystem()))
    manager = disks.start()
    a_new_log(manager)
    disks.settle()
    disks.crash(manager)
    log = disks.start().get_or_create(T0, TOPIC_ID)
    synced = disks.watch("sync")
    disks.settle()
    assert synced == []
    with pytest.raises(TopicIdNotDurable):
        log.append(a_run(a_batch(2)), 0, 0, REPLICATION)
    disks.settle()
    log.append(a_run(a_batch(2)), 0, 0, REPLICATION)


def test_a_log_without_an_id_takes_that_of_its_topic_in_either_mode() -> None:
    """Of a release before 2.8, or of a cluster whose metadata was lost: an operator has removed the file."""
    disks = disks_on(MemoryFileSystem())
    manager = disks.start()
    append(manager.get_or_create(T0, is_new=True), a_batch(2))
    manager.shutdown()
    log = disks.start().get_or_create(T0, TOPIC_ID)
    disks.settle()
    assert (log.topic_id, log.log_end_offset) == (TOPIC_ID, 2)
    assert read_topic_id(disks.filesystem, log.directory) == TOPIC_ID


def a_leader(filesystem: FaultyFileSystem) -> tuple[Replicas, Partition]:
    replicas = Replicas(filesystem)
    replicas.logs.context.on_topic_id_due = lambda log: None
    replicas.say(state(epoch=1, isr=[0], replicas=[0]))
    return replicas, replicas.partition


def test_the_first_batch_of_a_producer_is_left_to_a_worker_which_syncs_the_id() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    replicas, partition = a_leader(filesystem)
    left = replicas.append(3)
    assert (left.needs_worker, partition.log.log_end_offset) == (True, 0)
    completion = complete_and_append(left.detached(), partition, -1, CLIENT, replicas.clock)
    done = next(completion)(1 << 20)
    assert partition.log.log_end_offset == 0
    with pytest.raises(StopIteration):
        completion.send(done)
    assert partition.log.log_end_offset == 3
    assert not replicas.append(1).needs_worker


def test_a_disk_that_refuses_the_id_takes_no_record_of_the_log() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    replicas, partition = a_leader(filesystem)
    left = replicas.append(3)
    filesystem.fails_if = lambda name, path: name == "sync"
    work = next(complete_and_append(left.detached(), partition, -1, CLIENT, replicas.clock))
    with pytest.raises(LogDirFailure, match=r"partition\.metadata"):
        work(1 << 20)
    assert replicas.append(3).needs_worker
    assert partition.log.log_end_offset == 0


def test_a_copy_of_a_former_topics_log_is_deleted_and_never_takes_the_place_of_the_new_one(caplog: pytest.LogCaptureFixture) -> None:
    """Its directory was offline when that topic was deleted."""
    disks = disks_on(MemoryFileSystem(), "/a,/b")
    manager = disks.start()
    former = manager.get_or_create(T0, TOPIC_ID, is_new=True, log_dir="/a")
    append(former, a_batch(2))
    append(a_future_log(manager, former, "/b"), a_batch(2))
    manager.handle_log_dir_failure("/b")
    manager.delete(T0)
    append(manager.get_or_create(T0, OTHER_ID, is_new=True), a_batch(3))
    manager.shutdown()
    manager = disks.start()
    manager.moves.start(T0)
    disks.settle()
    log = manager.get(T0)
    assert log is not None
    assert (log.log_dir, log.topic_id, log.log_end_offset) == ("/a", OTHER_ID, 3)
    assert manager.get(T0, future=True) is None
    assert "belongs to another topic of that name" in caplog.text


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_a_log_of_a_coordinators_topic_takes_appends_at_once(name: str) -> None:
    """Its appends are made on the event loop. The thread that creates the log, or opens it after a crash, has synced the id."""
    memory = MemoryFileSystem()
    disks = disks_on(memory)
    manager = disks.start()
    partition = TopicPartition(name, 0)
    path = f"/data/{partition}/partition.metadata"
    manager.new_logs.make([NewLog(partition, TOPIC_ID, is_new=True)], lambda error: None)
    assert memory.nodes[path].durable == encode_topic_id(TOPIC_ID)
    created = manager.get_or_create(partition, TOPIC_ID)
    created.append(a_run(a_batch(2)), 0, 0, COORDINATOR)

    empty = disks_on(MemoryFileSystem())
    manager = empty.start()
    manager.new_logs.make([NewLog(partition, TOPIC_ID, is_new=True)], lambda error: None)
    assert isinstance(empty.filesystem, MemoryFileSystem)
    empty.filesystem.nodes[path].durable = b""  # as if the process had been killed before the sync
    empty.crash(manager)
    opened = empty.start().get_or_create(partition, TOPIC_ID)
    assert empty.filesystem.nodes[path].durable == encode_topic_id(TOPIC_ID)
    opened.append(a_run(a_batch(2)), 0, 0, COORDINATOR)


def test_a_clean_stop_makes_the_id_of_an_empty_log_durable() -> None:
    """The next start trusts it, and this process has appended nothing."""
    memory = MemoryFileSystem()
    disks = disks_on(memory)
    manager = disks.start()
    a_new_log(manager)
    disks.settle()
    path = "/data/topic-0/partition.metadata"
    memory.nodes[path].durable = b""  # as if the process had been killed before the sync
    disks.crash(manager)
    disks.start().shutdown()
    assert memory.nodes[path].durable == encode_topic_id(TOPIC_ID)
