"""Moves replicas to other log directories of this broker (KIP-113), for `ReplicaManager`.

A thread creates the logs that will replace others, some at a time. Then the copying begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from ottla.pauses import pause
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.errors import InvalidTopicName, ReplicationError
from ottla.replication.ports.thread_work import done
from ottla.storage.errors import StorageError
from ottla.storage.manager.future_logs import may_have_future
from ottla.storage.manager.new_logs import NewLog

if TYPE_CHECKING:
    from ottla.replication.control.replica_manager import ReplicaManager

TOGETHER = 5
"""Logs that a thread creates together."""


async def alter_log_dirs(
    manager: ReplicaManager, wanted: Mapping[TopicPartition, str]
) -> dict[TopicPartition, ReplicationError | StorageError | None]:
    """See `ReplicaManager.alter_log_dirs`."""
    outcome: dict[TopicPartition, ReplicationError | StorageError | None] = {}
    left = iter(wanted.items())
    while some := list(islice(left, TOGETHER)):
        new: list[NewLog] = []
        for topic_partition, log_dir in some:
            try:
                new.extend(_prepare(manager, topic_partition, log_dir))
                outcome[topic_partition] = None
            except (ReplicationError, StorageError) as error:
                outcome[topic_partition] = error.with_traceback(None)
        if new:
            await done(partial(manager.log_manager.new_logs.make, new))
        for topic_partition, log_dir in some:
            if outcome[topic_partition] is None:
                try:
                    _start(manager, topic_partition, log_dir)
                except (ReplicationError, StorageError) as error:
                    outcome[topic_partition] = error.with_traceback(None)
        await pause()
    return outcome


def _prepare(manager: ReplicaManager, topic_partition: TopicPartition, log_dir: str) -> list[NewLog]:
    """End a conflicting move. Returns the log that must be created, if any."""
    logs = manager.log_manager
    if not may_have_future(topic_partition):
        raise InvalidTopicName("The topic name is too long.")
    logs.directories.check_known(log_dir)
    if topic_partition not in manager.offline:
        future = logs.get(topic_partition, future=True)
        if future is None or future.log_dir != log_dir:
            logs.moves.stop(topic_partition)
            logs.future_logs.delete(topic_partition)
        logs.future_logs.prefer(topic_partition, log_dir)
    log = manager.partition_or_raise(*topic_partition).log
    if log.log_dir == log_dir or logs.get(topic_partition, future=True) is not None:
        return []
    logs.future_logs.check_none_offline(topic_partition)
    return [NewLog(topic_partition, log.topic_id, is_new=True, future_in=log_dir)]


def _start(manager: ReplicaManager, topic_partition: TopicPartition, log_dir: str) -> None:
    """Begin the move, unless the future log could not be created or another directory was requested meanwhile."""
    manager.log_manager.directories.check_known(log_dir)
    if manager.partition_or_raise(*topic_partition).log.log_dir != log_dir:
        manager.log_manager.moves.start(topic_partition)
