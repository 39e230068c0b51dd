"""Ends the replicas of deleted topics whose names other topics have by now, for `ReplicaManager`.

With ZooKeeper a topic stays until every broker has deleted its replicas. Without ZooKeeper it is gone at once, as in Apache Kafka 4. So a
broker that was away may still have a replica, and even lead it, when the controller asks it to host another topic of that name. The topic
ids tell them apart. As in Apache Kafka 4, the directory of the former log is renamed to end with `-stray`, and remains until an operator
deletes it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from ottla.pauses import pause
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.control.controller_requests import LeaderAndIsrAnswer, NamedState
from ottla.replication.ports.thread_work import done
from ottla.storage.errors import LogDirFailure

if TYPE_CHECKING:
    from ottla.replication.control.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


async def make_way(manager: ReplicaManager, states: Iterable[NamedState], answer: LeaderAndIsrAnswer) -> None:
    """Set aside the replicas of former topics of these names. Returns when their directories are renamed.

    An earlier LeaderAndIsr that is still being applied does not host them again, and does not set aside those of the new topics.
    """
    earlier = manager.answers[: manager.answers.index(answer)]
    renamed_in: set[str] = set()
    for named in states:
        topic_partition = TopicPartition(named.topic, named.state.partition_index)
        forget_offline(manager, topic_partition, named.topic_id)
        log = manager.log_manager.get(topic_partition)
        if manager.broker_id not in named.state.replicas or answer.is_over(named):
            continue
        if log is not None and is_same_topic(log.topic_id, named.topic_id):
            continue
        for other in earlier:
            other.deleted.add(topic_partition)
        if log is None:
            continue
        renamed_in.update(set_aside(manager, topic_partition))
        await pause()
    if renamed_in:
        await done(partial(manager.log_manager.renames.when_done, renamed_in))


def forget_offline(manager: ReplicaManager, topic_partition: TopicPartition, topic_id: bytes) -> None:
    """Forget a replica in a failed log directory, if another topic than this one had it. It is set aside when the directory is back."""
    offline = manager.offline.get(topic_partition)
    if offline is not None and not is_same_topic(offline, topic_id):
        del manager.offline[topic_partition]


def is_same_topic(topic_id: bytes, other: bytes) -> bool:
    """Whether these ids may be those of one topic. A topic without an id may be any topic of its name."""
    return topic_id == other or ZERO_UUID in (topic_id, other)


def set_aside(manager: ReplicaManager, topic_partition: TopicPartition) -> set[str]:
    """Stop hosting the partition, and begin to rename the directories of its log. Returns the log directories with them."""
    partition = manager.partition(*topic_partition)
    if partition is not None:
        manager.remove(partition)
    logger.warning("%s: its topic was deleted while this broker was away", topic_partition)
    try:
        return {rename.log.log_dir for rename in manager.log_manager.delete(topic_partition, is_stray=True)}
    except LogDirFailure as failure:
        manager.log_manager.report_failure(failure)
        return set()
