"""Appends produced batches that a worker thread has to validate, recompress or convert first.

`Produce` calls it for the batches that `PartitionLog.append` has left. Messages of format 0 and 1 contain their offsets, in format 0 also
inside a compressed message. Therefore a batch for a log of such a format is converted for the current log end offset. The batches of one
partition take turns, and a batch is converted again if the log has grown meanwhile.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from protocol.records.batch import CURRENT_MAGIC
from storage.log.origins import CLIENT
from storage.validation.batch import complete_validation

if TYPE_CHECKING:
    from broker.request.services import Services
    from replication.leader.partition import Partition
    from storage.validation.run import BatchRun

_turns: WeakValueDictionary[Partition, asyncio.Lock] = WeakValueDictionary()
"""Locks of the partitions with batches that take turns. A lock exists as long as a batch has it or waits for it."""


async def append_in_worker(left: BatchRun, partition: Partition, acks: int, services: Services) -> BatchRun:
    """Have a worker complete the batch of the detached run `left`, and append it. Returns the appended run.

    Raises the errors of `complete_validation` and of `Partition.append`, which checks the leadership again.
    """
    loop = asyncio.get_running_loop()
    takes_turns = partition.log.rules.magic != CURRENT_MAGIC
    async with _turns.setdefault(partition, asyncio.Lock()) if takes_turns else nullcontext():
        while True:
            log = partition.log
            now_ms = services.clock.now_ms()
            run = await loop.run_in_executor(services.workers, complete_validation, left, log.rules, now_ms, log.log_end_offset)
            partition.append(run, acks, now_ms, CLIENT)
            if not run.needs_worker:
                return run
