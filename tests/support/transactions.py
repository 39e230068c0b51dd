"""Writes transactional batches and markers to replicas and logs of a test, as producers and coordinators write them."""

from protocol.records.builder import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from storage.log.origins import CLIENT
from storage.validation.run import BatchRun
from tests.support.batches import FIRST_TIMESTAMP, a_batch, a_run
from tests.support.replicas import TOPIC, Replicas


def write_in_transaction(
    replicas: Replicas, producer_id: int, *, epoch: int = 0, sequence: int = 0, records: int = 1, index: int = 0, topic: str = TOPIC
) -> BatchRun:
    """A batch of the open transaction of the producer, or of a new one, which a coordinator has verified."""
    partition = replicas.manager.partitions[topic][index]
    run = a_run(a_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True))
    run.guard = partition.begin_verification(producer_id, sequence, epoch)
    partition.append(run, -1, replicas.clock.now_ms(), CLIENT)
    return run


def a_marker_batch(producer_id: int, *, commit: bool = True, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    """The control batch that ends the transaction of a producer."""
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    marker = EndTransactionMarker(kind, coordinator_epoch)
    return build_end_transaction_marker(marker, timestamp=FIRST_TIMESTAMP, producer_id=producer_id, producer_epoch=epoch)
