"""Makes the topic id of a log durable, before records get into the log.

A log that has records and no id is taken for one of any topic of its name. So `PartitionLog` appends nothing until its id is in
`partition.metadata` and would survive a power cut, as in Apache Kafka. Usually `LogCheckpoints` has written the file a moment after the log
got its id. If a batch of a client comes earlier, the worker thread that validates it writes the file.

Coordinators append on the event loop, and would refuse requests meanwhile. So the thread that creates or opens a log of their topics makes
its id durable (`BROKERS_TOPICS`).
"""

import threading
from typing import TYPE_CHECKING

from ottla.storage.disk.partition_metadata import PARTITION_METADATA, encode_topic_id
from ottla.storage.errors import TopicIdNotDurable
from ottla.storage.log.origins import CLIENT
from ottla.storage.validation.run import BatchRun

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog


class PendingTopicId:
    """The topic id of one log. `PartitionLog.pending_topic_id` until it is durable."""

    __slots__ = ("_lock", "_log")

    def __init__(self, log: "PartitionLog") -> None:
        self._log = log
        self._lock = threading.Lock()

    def write(self) -> None:
        """Write the file, unless another thread has done so, and let the log take appends. Blocks; for any thread. Raises OSError."""
        log = self._log
        with self._lock:
            if log.pending_topic_id is self:
                log.files.small_files.replace(PARTITION_METADATA, encode_topic_id(log.topic_id))
                log.pending_topic_id = None

    def hold_back(self, run: BatchRun, origin: int) -> None:
        """Leave a batch of a client to a worker, which calls `make_durable`. Raises TopicIdNotDurable for other batches."""
        if origin != CLIENT:
            self._log.context.on_topic_id_due(self._log)
            raise TopicIdNotDurable(self._log.topic_partition)
        run.is_accepted = False
        run.needs_worker = True


def take_topic_id(log: "PartitionLog", topic_id: bytes) -> None:
    """Have the log belong to this topic. It takes no appends until that is durable, which it will be soon."""
    log.topic_id = topic_id
    log.pending_topic_id = PendingTopicId(log)
    log.context.on_topic_id_due(log)


def make_durable(log: "PartitionLog") -> None:
    """Make the topic id of the log durable, unless it is. Blocks; for any thread. Raises LogDirFailure, LogClosed."""
    pending = log.pending_topic_id
    if pending is not None:
        try:
            pending.write()
        except OSError as error:
            raise log.files.failure(error) from error


def is_durable(log: "PartitionLog") -> bool:
    """Whether the topic id of the log is durable. Otherwise it will be soon."""
    if log.pending_topic_id is None:
        return True
    log.context.on_topic_id_due(log)
    return False
