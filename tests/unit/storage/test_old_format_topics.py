"""Logs that keep message format 0 or 1, as message.format.version says under an inter.broker.protocol.version before 3.0."""

from __future__ import annotations

import itertools

import pytest

from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.compression import CODEC_BY_NAME
from ottla.storage.errors import InvalidTimestamp, RecordTooLarge, UnsupportedForMessageFormat
from ottla.storage.log.lookups import offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.log.origins import AppendOrigin
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.recovery import open_log
from ottla.storage.segment.log_settings import rules_for
from ottla.storage.validation.batch import complete_validation
from ottla.storage.validation.record_errors import UnreadableRecords
from ottla.storage.validation.run import BatchRun
from tests.support.batches import FIRST_TIMESTAMP, a_batch, a_record, a_run
from tests.support.logs import LOG_DIR, T0, a_context, a_log, a_topic_config, append, follow, read_all
from tests.support.old_messages import LOG_APPEND_TIME, Old, message, messages, read, wrapped

CODECS = ["none", "gzip", "snappy", "lz4"]
BROKER = {"inter.broker.protocol.version": "2.8"}
RELEASES = {0: "0.9.0", 1: "0.10.2", 2: "0.11.0"}


def an_old_log(magic: int, **config: str) -> PartitionLog:
    """A log of broker settings in which Apache Kafka 3.9 heeds message.format.version."""
    overrides = {"message.format.version": RELEASES[magic], "segment.index.bytes": "1200"}
    overrides |= {name.replace("_", "."): value for name, value in config.items()}
    return open_log(a_context(), T0, LOG_DIR, a_topic_config(overrides, BROKER), clean_shutdown=True, log_start_offset=0, recovery_point=0)


def magics(log: PartitionLog) -> set[int]:
    return {header.magic for _, header in iter_batches(read_all(log))}


def produce_messages(log: PartitionLog, records: bytes) -> BatchRun:
    """Append the message set of an old producer, the worker's part included."""
    run = BatchRun(memoryview(bytearray(records)))
    run.take_messages(records[16])
    now_ms = log.context.clock.now_ms()
    log.append(run, 0, now_ms, AppendOrigin.CLIENT)
    done = complete_validation(run.detached(), log.rules, now_ms, log.log_end_offset)
    log.append(done, 0, now_ms, AppendOrigin.CLIENT)
    return done


@pytest.mark.parametrize(
    ("between_brokers", "of_broker", "of_topic", "magic"),
    [
        ("3.9", None, "0.9.0", 2),
        ("3.0-IV1", None, "0.10.2", 2),
        ("3.0-IV0", None, "0.10.2", 1),
        ("2.8", None, None, 2),
        ("2.8", None, "0.9.0", 0),
        ("2.8", None, "0.10.0-IV0", 1),
        ("2.8", None, "0.11.0", 2),
        ("2.8", "0.10.2", None, 1),
        ("2.8", "0.10.2", "0.8.2", 0),
        ("2.8", "0.9.0", "2.8", 2),
        ("2.8", "0.9.0", "3.9", 0),
        ("0.10.2", "0.10.2", "0.11.0", 1),
    ],
)
def test_the_format_is_heeded_below_3_0_and_up_to_the_protocol_of_the_brokers(
    between_brokers: str, of_broker: str | None, of_topic: str | None, magic: int
) -> None:
    broker = {"inter.broker.protocol.version": between_brokers}
    if of_broker is not None:
        broker["log.message.format.version"] = of_broker
    overrides = {} if of_topic is None else {"message.format.version": of_topic}
    assert rules_for(T0, a_topic_config(overrides, broker)).magic == magic


@pytest.mark.parametrize(("magic", "codec"), list(itertools.product([0, 1], CODECS)))
def test_batches_are_stored_as_messages(magic: int, codec: str) -> None:
    log = an_old_log(magic)
    appended = 0
    records = [a_record(0), a_record(1, key=None), a_record(2, value=None), a_record(3, timestamp=-1)]
    for first in (0, 4):
        run = append(log, a_batch(records, codec))
        assert (run.first_offset, run.last_offset) == (first, first + 3)
        appended += run.size
    assert magics(log) == {magic}
    wanted = [
        Old(first + record.offset, record.timestamp if magic else -1, record.key, record.value) for first in (0, 4) for record in records
    ]
    data = read_all(log)
    assert read(data) == wanted
    assert appended == len(data)
    assert len(list(iter_batches(data))) == (8 if codec == "none" else 2)


@pytest.mark.parametrize(("magic", "produced", "codec"), list(itertools.product([0, 1], [0, 1], CODECS)))
def test_message_sets_are_stored_in_the_format_of_the_log(magic: int, produced: int, codec: str) -> None:
    log = an_old_log(magic)
    sent = [Old(offset, FIRST_TIMESTAMP + offset if produced else -1, b"k%d" % offset, b"v" * offset) for offset in range(3)]
    records = wrapped(produced, CODEC_BY_NAME[codec], sent) if codec != "none" else messages(produced, sent)
    produce_messages(log, records)
    done = produce_messages(log, records)
    assert magics(log) == {magic}
    both_know_times = magic == produced == 1
    assert read(read_all(log)) == [
        old._replace(offset=first + old.offset, timestamp=old.timestamp if both_know_times else -1) for first in (0, 3) for old in sent
    ]
    is_converted = magic != produced or (magic == 0 and codec != "none")
    assert (done.conversion is not None) == is_converted


def test_single_messages_are_limited_one_by_one() -> None:
    log = an_old_log(0, max_message_bytes="1000")
    produce_messages(log, messages(0, [Old(offset, -1, None, bytes(900)) for offset in range(3)]))
    assert log.log_end_offset == 3
    with pytest.raises(RecordTooLarge):
        produce_messages(log, message(0, Old(0, -1, None, bytes(1000))))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("config", [{}, {"segment.bytes": "30000"}, {"segment.index.bytes": "36"}], ids=["default", "small", "few entries"])
def test_many_single_messages_are_found_and_indexed(magic: int, config: dict[str, str]) -> None:
    log = an_old_log(magic, **config)
    sent = [Old(offset, FIRST_TIMESTAMP + (offset * 7 % 300 if magic else -1), None, bytes(50)) for offset in range(300)]
    for _ in range(2):
        produce_messages(log, messages(magic, sent))
    assert log.log_end_offset == 600
    assert [old.offset for old in read(read_all(log))] == list(range(600))
    log.segments.active.check_indexes()
    for offset in range(0, 600, 23):
        assert read(read_all(log, offset))[0].offset == offset
    if magic:
        for wanted in (0, 150, 298, 299):
            found = offset_for_timestamp(log, FIRST_TIMESTAMP + wanted)
            assert found is not None
            assert found.offset == next(old.offset for old in sent if old.timestamp >= FIRST_TIMESTAMP + wanted)
        latest = offset_of_max_timestamp(log)
        assert latest is not None
        assert (latest.offset, latest.timestamp) == (257, FIRST_TIMESTAMP + 299)
    else:
        assert log.segments.active.max_timestamp.timestamp == -1


def test_a_leader_looks_at_many_single_messages_piece_by_piece() -> None:
    log = an_old_log(1)
    sent = [Old(offset, FIRST_TIMESTAMP, None, b"") for offset in range(1000)]
    done = produce_messages(log, messages(1, sent))
    assert done.pieces is not None
    assert len(done.pieces) <= 1 + log.size_bytes // 4096


def test_the_time_of_the_append_replaces_those_of_the_producer() -> None:
    log = an_old_log(1, message_timestamp_type="LogAppendTime")
    now_ms = log.context.clock.now_ms()
    for codec in ("none", "gzip"):
        run = append(log, a_batch(2, codec))
        assert run.log_append_time_ms == now_ms
    data = read_all(log)
    assert {old.timestamp for old in read(data)} == {now_ms}
    assert all(header.attributes & LOG_APPEND_TIME for _, header in iter_batches(data))
    with pytest.raises(InvalidTimestamp):
        append(log, a_batch(1, log_append_time=1))


@pytest.mark.parametrize("magic", [0, 1])
def test_what_messages_have_no_place_for_is_refused(magic: int) -> None:
    log = an_old_log(magic)
    with pytest.raises(UnsupportedForMessageFormat, match="idempotent"):
        append(log, a_batch(producer_id=7))
    with pytest.raises(UnsupportedForMessageFormat, match="transactions"):
        append(log, a_batch(producer_id=7, transactional=True))
    with pytest.raises(UnsupportedForMessageFormat):
        append(log, a_batch([a_record(key=b"\0\0\0\1", value=bytes(6))], producer_id=7, control=True), origin=AppendOrigin.COORDINATOR)
    with pytest.raises(UnreadableRecords, match="headers"):
        append(log, a_batch([a_record(headers=((b"h", b"x"),))]))
    with pytest.raises(UnreadableRecords, match="zstd"):
        append(log, a_batch(codec="zstd"))
    assert log.log_end_offset == 0


def test_messages_are_converted_again_when_the_log_has_grown() -> None:
    log = an_old_log(0)
    now_ms = log.context.clock.now_ms()
    late = a_run(a_batch(2, "gzip"))
    log.append(late, 0, now_ms, AppendOrigin.CLIENT)
    assert late.needs_worker
    done = complete_validation(late.detached(), log.rules, now_ms, 0)
    append(log)
    log.append(done, 0, now_ms, AppendOrigin.CLIENT)
    assert done.needs_worker
    assert log.log_end_offset == 1
    done = complete_validation(late, log.rules, now_ms, 1)
    log.append(done, 0, now_ms, AppendOrigin.CLIENT)
    assert not done.needs_worker
    assert [old.offset for old in read(read_all(log))] == [0, 1, 2]


def test_a_log_of_an_old_format_has_no_leader_epochs() -> None:
    log = an_old_log(2)
    append(log, epoch=3)
    assert log.end_offset_for_epoch(3) == (3, 1)
    log.update_config(a_topic_config({"message.format.version": "0.10.2"}, BROKER))
    log.on_new_leader_epoch(4)
    append(log, epoch=4)
    assert (log.latest_epoch, log.leader_epochs.entries) == (None, [])
    log.update_config(a_topic_config({"message.format.version": "0.11.0"}, BROKER))
    append(log, epoch=5)
    assert log.leader_epochs.entries == [(5, 2)]


def test_a_follower_forgets_its_epochs_with_the_first_message_and_takes_those_behind() -> None:
    log = a_log()
    follow(log, a_batch(1, leader_epoch=2), 2)
    assert log.latest_epoch == 2
    follow(log, message(1, Old(1, 5, None, b"v")), 4)
    assert (log.latest_epoch, log.leader_epochs.entries) == (None, [])
    follow(log, message(1, Old(2, 5, None, b"v")) + a_batch(1, base_offset=3, leader_epoch=4), 4)
    assert log.leader_epochs.entries == [(4, 3)]


def test_a_log_of_an_old_format_is_opened_without_epochs() -> None:
    log = a_log()
    append(log, epoch=3)
    log.close()
    config = a_topic_config({"message.format.version": "0.9.0", "segment.index.bytes": "1200"}, BROKER)
    context = a_context(log.context.filesystem)
    again = open_log(context, T0, LOG_DIR, config, clean_shutdown=True, log_start_offset=0, recovery_point=1)
    assert (again.log_end_offset, again.latest_epoch) == (1, None)
