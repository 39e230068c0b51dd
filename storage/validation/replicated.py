"""Judges the batches that a follower got from its leader, before its log takes them unchanged.

`PartitionLog.append` calls `judge_replicated`. The rules of the topic are the leader's affair (`ottla.storage.validation.batch`): it has
applied them, perhaps with another configuration. A follower checks that the batches are undamaged and in order, and fit into a segment.

Invariant: the log and the bytes are not changed here.
"""

import logging
from typing import Final

from ottla.protocol.records.batch import CONTROL_MASK, CURRENT_MAGIC
from ottla.protocol.records.builder import read_marker
from ottla.protocol.records.errors import RecordFormatError
from ottla.storage.errors import CorruptRecord, OffsetsOutOfOrder
from ottla.storage.validation.batch import check_fits_segment
from ottla.storage.validation.rules import ValidationRules
from ottla.storage.validation.run import BatchRun

log = logging.getLogger(__name__)

MOST_WORK: Final = 16_384
"""Work of one append of a follower, in batches of a third to half a microsecond: 7 ms at most. The rest is fetched again."""
MARKER_WORK: Final = 16
"""Cost of the marker of a transaction, in such batches."""
MESSAGE_WORK: Final = 5
"""Cost of a message of an old format, in such batches."""
LARGEST_OFFSET: Final = 1 << 62
"""Largest base offset that is taken for undamaged. Its sum with a number of records fits into 64 bits."""


def judge_replicated(run: BatchRun, rules: ValidationRules, leader_epoch: int, latest_epoch: int | None, segment_bytes: int) -> int:
    """Check all batches of the run. Returns the end of the bytes that the log may take, where `run.start` stands for none.

    An incomplete last batch is left out; so are batches of a later epoch than `leader_epoch`, and the last ones of very many (MOST_WORK).
    `latest_epoch` is that of the log; `run.epochs` gets those that follow, and `forgets_epochs` is set if the log must forget its own.
    The first and the last offset of the accepted batches are in the run. Raises CorruptRecord, OffsetsOutOfOrder, RecordBatchTooLarge.
    """
    run.epochs = None
    run.forgets_epochs = False
    run.has_producers = False
    at = run.start
    last_offset = -1
    work = 0
    try:
        while work < MOST_WORK and run.read_next(at):
            work += 1
            if run.leader_epoch > leader_epoch:
                warn_of_later_epoch(run, rules, leader_epoch)
                break
            if not run.crc_is_valid():
                reason = f"the CRC of the batch at offset {run.base_offset} is not {run.crc:#010x}"
                raise CorruptRecord(rules.topic_partition, reason)
            if run.base_offset > LARGEST_OFFSET or run.base_offset + run.last_offset_delta <= last_offset:
                raise OffsetsOutOfOrder(rules.topic_partition, last_offset, run.base_offset + run.last_offset_delta)
            last_offset = run.base_offset + run.last_offset_delta
            if at == run.start:
                run.first_offset = run.base_offset
            if run.magic != CURRENT_MAGIC:
                work += MESSAGE_WORK
                run.forgets_epochs = True
                run.epochs = latest_epoch = None
            elif run.leader_epoch != latest_epoch and run.leader_epoch >= 0:
                latest_epoch = run.leader_epoch
                run.has_epoch(latest_epoch)
            if run.producer_id >= 0:
                run.has_producers = True
                if run.attributes & CONTROL_MASK:
                    work += MARKER_WORK
                    read_marker(run.frame, at, run.header())
            check_fits_segment(run.size, segment_bytes, rules)
            at += run.size
    except RecordFormatError as error:
        raise CorruptRecord(rules.topic_partition, str(error)) from None
    run.work = work
    run.last_offset = last_offset
    return at


def warn_of_later_epoch(run: BatchRun, rules: ValidationRules, leader_epoch: int) -> None:
    """Say that the answer came from a former leader."""
    log.warning(
        "%s: batches from offset %d on have leader epoch %d, the current one is %d; left out",
        rules.topic_partition,
        run.base_offset,
        run.leader_epoch,
        leader_epoch,
    )
