"""Compares the records of `__transaction_state` with those of Apache Kafka, and loads the logs that it left."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.coordination.partitions.skipped import NAMED
from ottla.coordination.partitions.topic_log import encode_pairs
from ottla.coordination.transactions.loading import TransactionLoader
from ottla.coordination.transactions.log_records import read_key, read_value, transaction_key, transaction_value
from ottla.coordination.transactions.metadata import TransactionMetadata, TransactionState, TransitMetadata
from ottla.protocol.messages.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from ottla.protocol.records.builder import frame_batch
from ottla.protocol.schema.wire import ProtocolError
from tests.support.pauses import at_once

GOLDEN = Path(__file__).parents[2] / "golden" / "log"
MANIFESTS = sorted(GOLDEN.glob("*/__transaction_state-*.json"))
NOW = 1_700_000_000_000


def records_of(manifest: Path) -> Iterator[dict[str, Any]]:
    for name, file in json.loads(manifest.read_text())["files"].items():
        if name.endswith(".log"):
            for batch in file["batches"]:
                yield from batch["records"]


def bytes_of(part: dict[str, str] | None) -> bytes | None:
    return None if part is None else bytes.fromhex(part["hex"])


def transit_of(txn: TransactionMetadata) -> TransitMetadata:
    return TransitMetadata(
        txn.producer_id, txn.previous_producer_id, txn.producer_epoch, -1, txn.timeout_ms, txn.state, txn.partitions, txn.start_ms,
        txn.last_update_ms, txn.next_producer_id, txn.client_version,
    )  # fmt: skip


def sorted_partitions(value: bytes) -> bytes:
    """The value with its partitions in order: Apache Kafka writes them in that of a hash set."""
    message, _ = TransactionLogValue.decode(value, 0, 2)
    for topic in message.transaction_partitions or ():
        topic.partition_ids.sort()
    return value[:2] + message.encode(0)


def load(*batches: bytes) -> tuple[dict[str, TransactionMetadata], TransactionLoader]:
    loader = TransactionLoader("__transaction_state-0")
    for _ in loader.feed(b"".join(batches)):
        pass
    found: dict[str, TransactionMetadata] = {}
    for _ in loader.states(NOW, found):
        pass
    return found, loader


def a_batch(*pairs: tuple[bytes, bytes | None]) -> bytes:
    return bytes(
        frame_batch(
            encode_pairs(pairs), attributes=0, base_offset=0, last_offset=len(pairs) - 1, partition_leader_epoch=0, base_timestamp=NOW,
            max_timestamp=NOW, producer_id=-1, producer_epoch=-1, base_sequence=-1, record_count=len(pairs),
        )
    )  # fmt: skip


def a_value(version: int = 0, **changes: Any) -> bytes:
    transit = TransitMetadata(7, -1, 3, -1, 60_000, TransactionState.ONGOING, {"t": frozenset({1, 0})}, NOW, NOW + 1)
    return at_once(transaction_value(transit._replace(**changes), version))


def test_there_are_logs_to_compare_with() -> None:
    assert len(MANIFESTS) >= 8


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_records_are_those_of_apache_kafka(manifest: Path) -> None:
    for record in records_of(manifest):
        key, value = bytes_of(record["key"]), bytes_of(record["value"])
        assert key is not None
        transactional_id = read_key(key)
        assert transactional_id is not None
        assert transaction_key(transactional_id) == key
        if value is not None:
            assert at_once(transaction_value(transit_of(read_value(transactional_id, value)), 0)) == sorted_partitions(value)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_log_of_apache_kafka_is_loaded_with_the_last_record_of_each_id(manifest: Path) -> None:
    expected: dict[str, Any] = {}
    for record in records_of(manifest):
        expected.pop(record["decoded_key"]["TransactionalId"], None)
        if record["value"] is not None:
            expected[record["decoded_key"]["TransactionalId"]] = record["decoded_value"]
    found, loader = load(*(path.read_bytes() for path in sorted(manifest.with_suffix("").glob("*.log"))))
    assert loader.skipped == 0
    assert {
        txn.transactional_id: (txn.producer_id, txn.producer_epoch, txn.timeout_ms, txn.state, txn.last_update_ms, txn.start_ms)
        for txn in found.values()
    } == {
        name: (
            value["ProducerId"], value["ProducerEpoch"], value["TransactionTimeoutMs"], value["TransactionStatus"],
            value["TransactionLastUpdateTimestampMs"], value["TransactionStartTimestampMs"],
        )
        for name, value in expected.items()
    }  # fmt: skip
    for name, value in expected.items():
        partitions = {each["Topic"]: frozenset(each["PartitionIds"]) for each in value["TransactionPartitions"] or ()}
        assert found[name].partitions == partitions


def test_an_id_without_a_transaction_has_no_list_of_partitions() -> None:
    value = a_value(state=TransactionState.EMPTY, partitions={}, start_ms=-1)
    message, _ = TransactionLogValue.decode(value, 0, 2)
    assert message.transaction_partitions is None
    message, _ = TransactionLogValue.decode(a_value(state=TransactionState.COMPLETE_ABORT, partitions={}), 0, 2)
    assert message.transaction_partitions == []


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("topics", [None, 0, 1, 3, 300])
def test_a_value_written_by_hand_is_that_of_the_declared_message(topics: int | None, version: int) -> None:
    state = TransactionState.EMPTY if topics is None else TransactionState.PREPARE_ABORT
    partitions = {f"tøpic-{number}": frozenset(range(number + 1)) for number in range(topics or 0)}
    message = TransactionLogValue(
        producer_id=1 << 40, producer_epoch=3, transaction_timeout_ms=60_000, transaction_status=state,
        transaction_partitions=None if topics is None else [
            PartitionsSchema(topic=topic, partition_ids=sorted(indexes)) for topic, indexes in partitions.items()
        ],
        transaction_last_update_timestamp_ms=NOW + 1, transaction_start_timestamp_ms=NOW,
    )  # fmt: skip
    value = a_value(version, state=state, producer_id=1 << 40, partitions=partitions)
    assert value == version.to_bytes(2, "big") + message.encode(version)


@pytest.mark.parametrize("previous", [-1, 0, 1 << 40])
@pytest.mark.parametrize("following", [-1, 9])
@pytest.mark.parametrize("client_version", [0, 2])
def test_tagged_fields_written_by_hand_are_those_of_the_declared_message(previous: int, following: int, client_version: int) -> None:
    message = TransactionLogValue(
        producer_id=7, producer_epoch=3, transaction_timeout_ms=60_000, transaction_status=TransactionState.EMPTY,
        transaction_partitions=None, transaction_last_update_timestamp_ms=NOW + 1, transaction_start_timestamp_ms=-1,
        previous_producer_id=previous, next_producer_id=following, client_transaction_version=client_version,
    )  # fmt: skip
    value = a_value(
        1, state=TransactionState.EMPTY, start_ms=-1, previous_producer_id=previous, next_producer_id=following,
        client_version=client_version,
    )  # fmt: skip
    assert value == b"\0\1" + message.encode(1)
    txn = read_value("id", value)
    assert (txn.previous_producer_id, txn.next_producer_id, txn.client_version) == (previous, following, client_version)


def test_a_key_written_by_hand_is_that_of_the_declared_message() -> None:
    assert transaction_key("ïd" * 99) == b"\0\0" + TransactionLogKey(transactional_id="ïd" * 99).encode(0)


def test_values_of_the_flexible_version_are_read() -> None:
    message = TransactionLogValue(
        producer_id=7, producer_epoch=3, transaction_timeout_ms=60_000, transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[4])], transaction_last_update_timestamp_ms=NOW,
        transaction_start_timestamp_ms=NOW,
    )  # fmt: skip
    txn = read_value("id", b"\0\1" + message.encode(1))
    assert (txn.producer_id, txn.state, txn.partitions) == (7, TransactionState.ONGOING, {"t": frozenset({4})})


@pytest.mark.parametrize(
    "value", [b"", b"\0", b"\0\2" + a_value()[2:], b"\xff\xff", a_value()[:-1], a_value().replace(b"\0\0\xea\x60\1", b"\0\0\xea\x60\x08")]
)
def test_values_that_are_none_are_refused(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_value("id", value)


def test_what_cannot_be_read_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    good = (transaction_key("good"), a_value())
    found, loader = load(a_batch(good, (transaction_key("bad"), b"\0\7"), (b"\0\1later", b""), (b"\0", b"")))
    assert list(found) == ["good"]
    assert loader.skipped == 3
    assert len(caplog.records) == 3
    assert "__transaction_state-0: a record with key" in caplog.text


def test_of_many_records_that_cannot_be_read_the_first_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    _, loader = load(a_batch(*((transaction_key(f"id-{number}"), b"\0\7") for number in range(10 * NAMED))))
    assert loader.skipped == 10 * NAMED
    assert len(caplog.messages) == NAMED + 1
    assert caplog.messages[-1] == (
        "__transaction_state-0: more records cannot be read; they are left out, and counted at the end of the load"
    )


def test_a_tombstone_removes_an_id_and_a_later_record_makes_it_anew() -> None:
    key = transaction_key("id")
    assert load(a_batch((key, a_value())), a_batch((key, None)))[0] == {}
    found, loader = load(a_batch((key, None)), a_batch((key, a_value(producer_id=9))))
    assert found["id"].producer_id == 9
    assert loader.found(len(found)) == "1 transactional ids"


def test_a_batch_that_cannot_be_read_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    good = a_batch((transaction_key("id"), a_value()))
    bad = bytearray(a_batch((transaction_key("other"), a_value())))
    bad[61] = 0xFF
    found, loader = load(bytes(bad), good)
    assert list(found) == ["id"]
    assert loader.skipped == 1
