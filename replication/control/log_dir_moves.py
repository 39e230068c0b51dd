"""Moves replicas to other log directories of this broker (KIP-113): a method of `ReplicaManager`.

A thread creates the logs that will replace others, some per turn of the event loop. Then the copying begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from replication.errors import InvalidTopicName, ReplicationError
from replication.ports.thread_work import done
from storage.disk.topic_partition import TopicPartition
from storage.errors import StorageError
from storage.manager.future_logs import may_have_future
from storage.manager.new_logs import NewLog

if TYPE_CHECKING:
    from replication.control.replica_manager import ReplicaManager

MOVES_PER_TURN = 5


async def alter_log_dirs(
    self: ReplicaManager, wanted: Mapping[TopicPartition, str]
) -> dict[TopicPartition, ReplicationError | StorageError | None]:
    """Begin to move each replica to its directory, or have a missing replica created there.

    A request for the present directory ends a move to another one. Returns the error of each replica, or None: InvalidTopicName,
    LogDirNotFound, LogDirFailure, and the errors of `partition_or_raise`.
    """
    outcome: dict[TopicPartition, ReplicationError | StorageError | None] = {}
    left = iter(wanted.items())
    while turn := list(islice(left, MOVES_PER_TURN)):
        new: list[NewLog] = []
        for topic_partition, log_dir in turn:
            try:
                new.extend(_prepare(self, topic_partition, log_dir))
                outcome[topic_partition] = None
            except (ReplicationError, StorageError) as error:
                outcome[topic_partition] = error.with_traceback(None)
        if new:
            await done(partial(self.log_manager.new_logs.make, new))
        for topic_partition, log_dir in turn:
            if outcome[topic_partition] is None:
                try:
                    _start(self, topic_partition, log_dir)
                except (ReplicationError, StorageError) as error:
                    outcome[topic_partition] = error.with_traceback(None)
        await asyncio.sleep(0)
    return outcome


def _prepare(self: ReplicaManager, topic_partition: TopicPartition, log_dir: str) -> list[NewLog]:
    """End a conflicting move. Returns the log that must be created, if any."""
    logs = self.log_manager
    if not may_have_future(topic_partition):
        raise InvalidTopicName("The topic name is too long.")
    logs.check_log_dir(log_dir)
    if topic_partition not in self.offline:
        future = logs.get(topic_partition, future=True)
        if future is None or future.log_dir != log_dir:
            logs.moves.stop(topic_partition)
            logs.delete_future(topic_partition)
        logs.prefer_log_dir(topic_partition, log_dir)
    log = self.partition_or_raise(*topic_partition).log
    if log.log_dir == log_dir or logs.get(topic_partition, future=True) is not None:
        return []
    logs.check_no_future_offline(topic_partition)
    return [NewLog(topic_partition, log.topic_id, is_new=True, future_in=log_dir)]


def _start(self: ReplicaManager, topic_partition: TopicPartition, log_dir: str) -> None:
    """Begin the move, unless the future log could not be created or another directory was requested meanwhile."""
    self.log_manager.check_log_dir(log_dir)
    if self.partition_or_raise(*topic_partition).log.log_dir != log_dir:
        self.log_manager.moves.start(topic_partition)
