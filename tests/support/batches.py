"""Builders of records and record batches, for tests that need bytes a producer could have sent."""

from collections.abc import Sequence

import crc32c

from ottla.protocol.records.batch import ATTRIBUTES_OFFSET, CRC_OFFSET, TimestampType
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import CODEC_BY_NAME
from ottla.protocol.records.reader import Header, Record
from ottla.storage.validation.batch import FIRST_VERSION_WITH_ZSTD, judge, read_only_batch
from ottla.storage.validation.rules import ValidationRules
from ottla.storage.validation.run import BatchRun

FIRST_TIMESTAMP = 1_700_000_000_000


def a_record(
    offset: int = 0,
    timestamp: int | None = None,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Sequence[Header] = (),
) -> Record:
    """A record; timestamps grow by a millisecond per offset unless given."""
    return Record(offset, FIRST_TIMESTAMP + offset if timestamp is None else timestamp, key, value, tuple(headers))


def a_batch(
    records: int | Sequence[Record] = 1,
    codec: str = "none",
    base_offset: int = 0,
    *,
    timestamps: Sequence[int] | None = None,
    key: bytes | None = b"key",
    value_bytes: int = 5,
    producer_id: int = -1,
    producer_epoch: int | None = None,
    base_sequence: int | None = None,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    log_append_time: int | None = None,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytearray:
    """A batch in a writable buffer: `records` of them with keys `key` and values of `value_bytes`, or just those given.

    With a producer id, epoch and sequence are 0 unless given. `log_append_time` makes it a LogAppendTime batch.
    """
    if isinstance(records, int):
        times = timestamps if timestamps is not None else [FIRST_TIMESTAMP + i for i in range(records)]
        records = [Record(base_offset + i, times[i], key, (b"value-%d-" % i * value_bytes)[:value_bytes]) for i in range(records)]
    absent = -1 if producer_id < 0 else 0
    return build_batch(
        records,
        CODEC_BY_NAME[codec],
        base_offset=base_offset,
        timestamp_type=TimestampType.CREATE_TIME if log_append_time is None else TimestampType.LOG_APPEND_TIME,
        log_append_time=-1 if log_append_time is None else log_append_time,
        producer_id=producer_id,
        producer_epoch=absent if producer_epoch is None else producer_epoch,
        base_sequence=absent if base_sequence is None else base_sequence,
        is_transactional=transactional,
        is_control=control,
        partition_leader_epoch=leader_epoch,
        delete_horizon_ms=delete_horizon_ms,
        level=level,
    )


def a_run(batch: bytes | bytearray | memoryview | None = None) -> BatchRun:
    """A copy of a batch (of one record unless given) that is about to be appended."""
    run = BatchRun(memoryview(bytearray(a_batch() if batch is None else batch)))
    run.read(0)
    return run


def judged(batch: bytes | bytearray | memoryview, rules: ValidationRules, now_ms: int, *, from_client: bool = True) -> BatchRun:
    """A batch in its buffer, read and judged as the one of a Produce request."""
    run = BatchRun(memoryview(batch))
    read_only_batch(run, FIRST_VERSION_WITH_ZSTD)
    judge(run, rules, now_ms, from_client)
    return run


def with_crc(batch: bytes | bytearray) -> bytearray:
    """The batch with a checksum that is right for its bytes: for batches that lie in some other way."""
    batch = bytearray(batch)
    batch[CRC_OFFSET:ATTRIBUTES_OFFSET] = crc32c.crc32c(bytes(batch[ATTRIBUTES_OFFSET:])).to_bytes(4, "big")
    return batch


def with_bytes(batch: bytes | bytearray, position: int, replacement: bytes) -> bytearray:
    """The batch with some bytes replaced and its checksum made right."""
    batch = bytearray(batch)
    batch[position : position + len(replacement)] = replacement
    return with_crc(batch)
