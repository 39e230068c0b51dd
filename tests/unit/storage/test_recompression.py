"""Broker-side recompression: a topic whose compression.type is not the producer's."""

import tracemalloc
from contextlib import nullcontext
from random import Random

import pytest

from ottla.protocol.records.batch import TimestampType, crc_is_valid, parse_header
from ottla.protocol.records.compression import CODEC_BY_NAME
from ottla.protocol.records.reader import iter_records
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge
from ottla.storage.validation.batch import complete_validation
from ottla.storage.validation.record_errors import UnreadableRecords
from ottla.storage.validation.records import recompress
from ottla.storage.validation.rules import ValidationRules
from ottla.storage.validation.run import BatchRun
from tests.support.batches import FIRST_TIMESTAMP, a_batch, a_record, judged, with_bytes
from tests.support.golden_logs import golden_batches

ORDERS = TopicPartition("orders", 0)
NOW = FIRST_TIMESTAMP + 60_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def recompressed(batch: bytearray, rules: ValidationRules) -> BatchRun:
    asked = judged(batch, rules, NOW)
    assert (asked.needs_recompression, asked.needs_worker) == (True, True)
    done = complete_validation(asked.detached(), rules, NOW)
    assert (done.needs_recompression, done.needs_worker) == (False, False)
    return done


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_a_batch_gets_the_codec_of_its_topic_and_keeps_everything_else(source: str, target: str) -> None:
    rules = ValidationRules(ORDERS, compression_codec=CODEC_BY_NAME[target])
    batch = a_batch(20, source, producer_id=8, producer_epoch=2, base_sequence=40, transactional=True)
    if source == target:
        assert not judged(batch, rules, NOW).needs_worker
        return
    before = parse_header(batch)
    done = recompressed(batch, rules)
    done.stamp(500, 6)
    header = parse_header(done.batch())
    assert header.compression_codec == CODEC_BY_NAME[target]
    assert (header.base_offset, header.partition_leader_epoch, header.last_offset_delta, header.record_count) == (500, 6, 19, 20)
    assert header[7:] == before[7:]
    assert header.is_transactional
    assert crc_is_valid(done.batch())
    assert [record[1:] for record in iter_records(done.batch())] == [record[1:] for record in iter_records(batch)]


@pytest.mark.parametrize("target", CODECS)
def test_a_large_record_keeps_its_bytes_although_its_memory_is_given_back(target: str) -> None:
    value = Random(7).randbytes(900_000)
    batch = a_batch([a_record(0, value=value)], "snappy" if target == "gzip" else "gzip")
    done = recompressed(batch, ValidationRules(ORDERS, compression_codec=CODEC_BY_NAME[target]))
    assert [record.value for record in iter_records(done.batch())] == [value]


def test_a_recompressed_batch_has_the_bytes_that_apache_kafka_wrote() -> None:
    golden = next(batch for batch in golden_batches() if batch.place.startswith("clean/log-recompress-0/"))
    records = [a_record(i, key=b"k%d" % i, value=b"uncompressed by the producer %d" % i) for i in range(3)]
    done = recompressed(a_batch(records), ValidationRules(ORDERS, compression_codec=CODEC_BY_NAME["zstd"]))
    done.stamp(0, 0)
    assert done.batch() == golden.log[golden.position : golden.position + golden.manifest["size"]]


def test_recompression_with_log_append_time_sets_the_leaders_clock() -> None:
    rules = ValidationRules(ORDERS, compression_codec=CODEC_BY_NAME["lz4"], timestamp_type=TimestampType.LOG_APPEND_TIME)
    done = recompressed(a_batch(3), rules)
    assert (done.max_timestamp, done.log_append_time_ms) == (NOW, NOW)
    assert {record.timestamp for record in iter_records(done.batch())} == {NOW}
    assert parse_header(done.batch()).base_timestamp == FIRST_TIMESTAMP


def test_the_level_of_the_topic_is_used() -> None:
    batch = a_batch([a_record(i, value=b"%d user=%d path=/orders" % (i, i * 7919)) for i in range(2000)])
    sizes = [recompressed(batch, ValidationRules(ORDERS, compression_codec=1, compression_level=level)).size for level in (1, 9)]
    assert sizes[1] < sizes[0]


def test_records_are_checked_before_they_are_recompressed() -> None:
    gzip = CODEC_BY_NAME["gzip"]
    with pytest.raises(InvalidRecord) as caught:
        recompressed(a_batch(10, "lz4", key=None), ValidationRules(ORDERS, compression_codec=gzip, compact=True))
    assert len(caught.value.record_errors) == 10
    with pytest.raises(InvalidTimestamp):
        recompressed(a_batch(10, "lz4"), ValidationRules(ORDERS, compression_codec=gzip, timestamp_before_max_ms=1))
    with pytest.raises(InvalidRecord):
        recompressed(with_bytes(a_batch(10), 61, b"\x7e"), ValidationRules(ORDERS, compression_codec=gzip))
    with pytest.raises(UnreadableRecords):
        recompressed(with_bytes(a_batch(10, "lz4"), 70, b"\xff\xff\xff\xff"), ValidationRules(ORDERS, compression_codec=gzip))


@pytest.mark.slow
def test_a_small_batch_of_very_many_records_takes_little_memory() -> None:
    batch = a_batch([a_record(i, FIRST_TIMESTAMP, None, None) for i in range(10_000)], "zstd")
    asked = judged(batch, ValidationRules(ORDERS, compression_codec=CODEC_BY_NAME["gzip"]), NOW).detached()
    pauses: list[None] = []
    tracemalloc.start()
    done = recompress(asked.batch(), asked.header(), ValidationRules(ORDERS, compression_codec=1), NOW, lambda: pauses.append(None))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000, "as objects the records take 1.5 MB, and their copies as many"
    assert len(pauses) == 1 + 49 + 2, "between slices that are checked, and that are encoded; where memory was freed"
    assert [record.offset for record in iter_records(done)] == list(range(10_000))


@pytest.mark.slow
@pytest.mark.parametrize("is_refused", [False, True])
def test_very_many_headers_take_little_memory(is_refused: bool) -> None:
    """A batch of 1 MiB may have 64 million empty ones."""
    batch = a_batch([a_record(key=None, headers=[(b"", None)] * 50_000)], "zstd")
    rules = ValidationRules(ORDERS, compression_codec=CODEC_BY_NAME["gzip"], compact=is_refused)
    asked = judged(batch, rules, NOW).detached()
    done = batch
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecord) if is_refused else nullcontext():
            done = recompress(asked.batch(), asked.header(), rules, NOW, lambda: None)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000, "the headers have 100 KB, and take 3.7 MB as objects"
    finally:
        tracemalloc.stop()
    assert [record[1:] for record in iter_records(done)] == [record[1:] for record in iter_records(batch)]


def test_a_batch_that_is_too_large_after_recompression_is_refused() -> None:
    batch = a_batch(100, "zstd", value_bytes=1000)
    with pytest.raises(RecordTooLarge):
        recompressed(batch, ValidationRules(ORDERS, compression_codec=0, max_message_bytes=len(batch) + 1000))


def test_the_original_records_are_left_alone() -> None:
    batch = a_batch(5)
    before = bytes(batch)
    recompressed(batch, ValidationRules(ORDERS, compression_codec=4)).stamp(9, 9)
    assert batch == before


def test_uncompressed_control_batches_stay_uncompressed() -> None:
    batch = a_batch(control=True, transactional=True, producer_id=3, base_sequence=-1)
    rules = ValidationRules(ORDERS, compression_codec=CODEC_BY_NAME["gzip"])
    assert not judged(batch, rules, NOW, from_client=False).needs_worker
