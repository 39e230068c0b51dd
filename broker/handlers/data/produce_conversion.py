"""Appends produced batches that a worker thread has to validate, recompress or convert first.

`Produce` calls it for the batches that `PartitionLog.append` has left. A batch for a log of an old message format is converted again if the
log has grown meanwhile. So the batches of one such partition take turns.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ottla.protocol.records.batch import CURRENT_MAGIC
from ottla.replication.leader.completion import complete_and_append
from ottla.storage.log.origins import CLIENT

if TYPE_CHECKING:
    from ottla.broker.request.services import Services
    from ottla.replication.leader.partition import Partition
    from ottla.storage.validation.run import BatchRun

_turns: WeakValueDictionary[Partition, asyncio.Lock] = WeakValueDictionary()
"""Locks of the partitions with batches that take turns. A lock exists as long as a batch has it or waits for it."""


async def append_in_worker(left: BatchRun, partition: Partition, acks: int, services: Services) -> BatchRun:
    """Have a worker complete the batch of the detached run `left`, and append it. Returns the appended run.

    Raises as `complete_and_append`.
    """
    takes_turns = partition.log.rules.magic != CURRENT_MAGIC
    async with _turns.setdefault(partition, asyncio.Lock()) if takes_turns else nullcontext():
        completion = complete_and_append(left, partition, acks, CLIENT, services.clock)
        work = next(completion)
        while True:
            run = await services.expansion.run(work)
            try:
                work = completion.send(run)
            except StopIteration as end:
                appended: BatchRun = end.value
                return appended
