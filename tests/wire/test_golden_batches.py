"""Every batch that a real Apache Kafka wrote: read as its manifest says, and written again to the same bytes."""

from typing import Any

from ottla.protocol.records.batch import KNOWN_ATTRIBUTES, TIMESTAMP_TYPE_MASK, TimestampType, crc_is_valid, iter_batches, parse_header
from ottla.protocol.records.builder import build_batch, empty_batch, parse_end_transaction_marker
from ottla.protocol.records.compression import CODEC_BY_NAME, CompressionCodec
from ottla.protocol.records.reader import Record, check_records, iter_records, parse_records, record_data
from tests.support.golden_logs import GoldenBatch, golden_batches


def test_the_recorded_logs_hold_the_batches_that_their_readme_counts() -> None:
    assert len(golden_batches()) == 675


def test_iterating_a_file_finds_the_batches_of_its_manifest() -> None:
    positions: dict[int, list[int]] = {}
    logs: dict[int, bytes] = {}
    for batch in golden_batches():
        logs[id(batch.log)] = batch.log
        positions.setdefault(id(batch.log), []).append(batch.position)
    for key, log in logs.items():
        found = [position for position, _ in iter_batches(log)]
        assert found[: len(positions[key])] == positions[key]


def test_every_header_field_is_read_as_dumped() -> None:
    for place, log, position, manifest in golden_batches():
        header = parse_header(log, position)
        timestamp_type = "LogAppendTime" if header.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"
        read = {
            "size": header.size,
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "count": header.record_count,
            "partition_leader_epoch": header.partition_leader_epoch,
            "magic": header.magic,
            "crc": header.crc,
            "crc_valid": crc_is_valid(log, position),
            "attributes": header.attributes & 0xFFFF,
            "codec": CompressionCodec(header.compression_codec).label,
            "timestamp_type": timestamp_type,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "delete_horizon": header.has_delete_horizon,
            "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
        }
        assert read == {name: manifest[name] for name in read}, place


def test_every_record_is_read_as_dumped() -> None:
    for place, log, position, manifest in golden_batches():
        records = list(iter_records(log, position))
        assert [_as_dumped(record) for record in records] == [_dumped(record) for record in manifest["records"]], place


def test_a_walk_over_the_records_agrees_with_reading_them() -> None:
    for place, log, position, _ in golden_batches():
        header = parse_header(log, position)
        data = record_data(log, position, header)
        records = list(parse_records(data, header))
        walked = check_records(iter((data,)), header)
        if records:
            assert walked.max_timestamp == max(record.timestamp for record in records), place
            assert walked.min_timestamp == min(record.timestamp for record in records), place
        assert walked.has_null_key == any(record.key is None for record in records), place
        offsets = [record.offset - header.base_offset for record in records]
        assert walked.offsets_are_consecutive == (offsets == list(range(len(records)))), place


def test_every_batch_is_written_again_to_the_same_bytes() -> None:
    snappy_in_other_words = 0
    for place, log, position, manifest in golden_batches():
        original = log[position : position + manifest["size"]]
        if manifest["attributes"] & ~KNOWN_ATTRIBUTES:
            continue  # a test client set a bit without meaning
        rebuilt = _rebuilt(GoldenBatch(place, log, position, manifest))
        if manifest["codec"] == "snappy" and rebuilt != original:
            snappy_in_other_words += 1  # another encoder of the same format
            assert list(iter_records(rebuilt)) == list(iter_records(original))
            continue
        assert rebuilt == original, place
    assert snappy_in_other_words <= 2


def test_every_transaction_marker_is_read_as_dumped() -> None:
    found = 0
    for place, log, position, manifest in golden_batches():
        if not manifest["control"]:
            continue
        for record, dumped in zip(iter_records(log, position), manifest["records"], strict=True):
            marker = parse_end_transaction_marker(record)
            assert (marker.type.name, marker.coordinator_epoch) == (dumped["control_type"], dumped["coordinator_epoch"]), place
            found += 1
    assert found > 10


def _rebuilt(batch: GoldenBatch) -> bytes:
    manifest = batch.manifest
    header = parse_header(batch.log, batch.position)
    timestamp_type = header.timestamp_type
    if not manifest["records"]:
        return bytes(
            empty_batch(
                base_offset=manifest["base_offset"],
                last_offset=manifest["last_offset"],
                timestamp=manifest["max_timestamp"],
                producer_id=manifest["producer_id"],
                producer_epoch=manifest["producer_epoch"],
                base_sequence=manifest["base_sequence"],
                timestamp_type=timestamp_type,
                is_transactional=manifest["transactional"],
                is_control=manifest["control"],
                partition_leader_epoch=manifest["partition_leader_epoch"],
            )
        )
    # LogAppendTime hides the producer's own timestamps from readers, but they are in the deltas
    with_own_timestamps = header._replace(attributes=header.attributes & ~TIMESTAMP_TYPE_MASK)
    return bytes(
        build_batch(
            list(parse_records(record_data(batch.log, batch.position, header), with_own_timestamps)),
            CODEC_BY_NAME[manifest["codec"]],
            base_offset=manifest["base_offset"],
            last_offset=manifest["last_offset"],
            timestamp_type=timestamp_type,
            log_append_time=manifest["max_timestamp"],
            producer_id=manifest["producer_id"],
            producer_epoch=manifest["producer_epoch"],
            base_sequence=manifest["base_sequence"],
            is_transactional=manifest["transactional"],
            is_control=manifest["control"],
            partition_leader_epoch=manifest["partition_leader_epoch"],
            delete_horizon_ms=header.delete_horizon_ms,
        )
    )


def _as_dumped(record: Record) -> dict[str, Any]:
    headers = [(key, value) for key, value in record.headers]
    return {"offset": record.offset, "timestamp": record.timestamp, "key": record.key, "value": record.value, "headers": headers}


def _dumped(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "key": _bytes(record["key"]),
        "value": _bytes(record["value"]),
        "headers": [(_bytes(key), _bytes(value)) for key, value in record["headers"]],
    }


def _bytes(dumped: str | dict[str, str] | None) -> bytes | None:
    if dumped is None:
        return None
    return dumped.encode() if isinstance(dumped, str) else bytes.fromhex(dumped["hex"])
