"""Asking for replicas to move to another log directory: nothing that takes long is done on the event loop."""

import asyncio

from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.control import log_dir_moves
from ottla.replication.errors import ReplicationError, UnknownTopicOrPartition
from ottla.storage.errors import LogDirFailure, LogDirNotFound, StorageError
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.replicas import TOPIC, Replicas, state

COUNT = log_dir_moves.TOGETHER + 2
Outcome = dict[TopicPartition, ReplicationError | StorageError | None]


class Asked:
    """Some partitions in /a and /b, on threads that run when the test says so."""

    def __init__(self) -> None:
        self.filesystem = FaultyFileSystem(MemoryFileSystem())
        self.replicas = Replicas(self.filesystem, log_dirs="/a,/b")
        for index in range(COUNT):
            self.replicas.say(state(isr=[0], replicas=[0], index=index))
        self.replicas.disks.settle()
        self.background = self.replicas.disks.background
        self.logs = self.replicas.manager.log_manager

    def others(self) -> dict[TopicPartition, str]:
        """Each to the other directory."""
        return {log.topic_partition: "/b" if log.log_dir == "/a" else "/a" for log in self.logs.current_logs()}

    def ask(self, wanted: dict[TopicPartition, str], *meanwhile: dict[TopicPartition, str]) -> list[Outcome]:
        """What each request is answered; the later ones come while the first log of the first one is being made."""
        self.background.done_at_once.clear()

        async def both() -> list[Outcome]:
            tasks = []
            for each in (wanted, *meanwhile):
                tasks.append(asyncio.create_task(self.replicas.manager.alter_log_dirs(each)))
                await asyncio.sleep(0)
            while not all(task.done() for task in tasks):
                self.background.run_work()
                await asyncio.sleep(0)
            return [task.result() for task in tasks]

        return asyncio.run(both())

    def directories(self) -> dict[TopicPartition, str]:
        """Where each is in the end."""
        self.background.advance(1000)
        return {log.topic_partition: log.log_dir for log in self.logs.current_logs()}


def test_all_of_them_move() -> None:
    asked = Asked()
    wanted = asked.others()
    assert asked.ask(wanted) == [dict.fromkeys(wanted)]
    assert asked.directories() == wanted


def test_each_that_cannot_move_is_told_why_and_the_others_move() -> None:
    asked = Asked()
    wanted = asked.others()
    nowhere, unknown = TopicPartition(TOPIC, 1), TopicPartition("other", 0)
    stays = asked.directories()[nowhere]
    (outcome,) = asked.ask({**wanted, nowhere: "/c", unknown: "/a"})
    assert [type(outcome[each]) for each in (nowhere, unknown)] == [LogDirNotFound, UnknownTopicOrPartition]
    assert asked.directories() == {**wanted, nowhere: stays}


def test_the_last_request_counts_also_while_the_log_of_the_first_is_made() -> None:
    asked = Asked()
    first = TopicPartition(TOPIC, 0)
    here = asked.directories()[first]
    wanted = asked.others()
    outcomes = asked.ask(wanted, {first: here})
    assert outcomes == [dict.fromkeys(wanted), {first: None}]
    assert asked.directories() == {**wanted, first: here}
    assert asked.logs.get(first, future=True) is None


def test_a_disk_that_refuses_is_what_they_are_told() -> None:
    asked = Asked()
    wanted = {each: log_dir for each, log_dir in asked.others().items() if log_dir == "/b"}
    asked.filesystem.fails_if = lambda name, path: name == "make_directory" and path.startswith("/b/")
    (outcome,) = asked.ask(wanted)
    assert {type(error) for error in outcome.values()} == {LogDirFailure}
    assert asked.logs.offline_log_dirs == ["/b"]


def test_a_replica_whose_old_directory_refuses_as_it_leaves_is_served_where_it_is_now() -> None:
    asked = Asked()
    here, there = TopicPartition(TOPIC, 0), asked.others()[TopicPartition(TOPIC, 0)]
    (left,) = {"/a", "/b"} - {there}
    asked.filesystem.fails_if = lambda name, path: name == "rename" and path == f"{left}/{here}"
    asked.ask({here: there})
    asked.background.advance(1000)
    assert asked.logs.offline_log_dirs == [left]
    partition = asked.replicas.manager.partition(*here)
    assert partition is not None
    assert partition.log.log_dir == there
    assert not partition.log.is_closed
    assert here not in asked.replicas.manager.offline
    assert here not in asked.logs.moves
