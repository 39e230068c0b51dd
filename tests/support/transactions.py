"""Transactional batches for replicas of a test, written as a producer writes them."""

from storage.log.origins import CLIENT
from storage.validation.run import BatchRun
from tests.support.batches import a_batch, a_run
from tests.support.replicas import TOPIC, Replicas


def write_in_transaction(
    replicas: Replicas, producer_id: int, *, epoch: int = 0, sequence: int = 0, records: int = 1, index: int = 0, topic: str = TOPIC
) -> BatchRun:
    """A batch of the open transaction of the producer, or of a new one."""
    run = a_run(a_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True))
    replicas.manager.partitions[topic][index].append(run, -1, replicas.clock.now_ms(), CLIENT)
    return run
