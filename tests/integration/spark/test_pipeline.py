"""The data pipeline on a good topic, and on topics with one thing wrong, which it names."""

from __future__ import annotations

import html
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Producer

from ottla.cli.options import client_security
from ottla.protocol.records import reader as record_reader
from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, build_batch, build_end_transaction_marker
from ottla.validate import verify
from ottla.validate.plan import Plan
from ottla.validate.verify import KINDS
from tests.support.apache_kafka import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.apache_kafka.ports import free_ports
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.certificates import Identity
from tests.support.spark import Partitions, Record, deep, make_topic, needs_spark, records_in, validated, verify_only, write
from tests.support.spark_security import SECRETS, secured_in_javas_words, secured_listener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_spark

ROWS = 2_000
PARTITIONS = 3


class Written(NamedTuple):
    """A broker with the topic of a run, the run's plan and report."""

    broker: BrokerProcess
    plan: Plan
    report: dict[str, Any]
    records: Partitions


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """The rows go to the topic, and come back, over SASL_SSL."""
    folder = tmp_path_factory.mktemp("pipeline")
    authority, secured = Identity("CN=authority"), f"127.0.0.1:{free_ports(1)[0]}"
    with a_broker(folder / "broker", **secured_listener(authority, secured)) as broker:
        plan = Plan(broker.bootstrap, "rows", ROWS, folder / "report", partitions=PARTITIONS, master="local[2]", keys=50)
        security = client_security(secured_in_javas_words(authority, folder / "client"))
        report = validated(spark, replace(plan, bootstrap=secured, security=security))
        yield Written(broker, plan, report, records_in(broker.bootstrap, "rows", PARTITIONS))
        assert not [secret for secret in SECRETS if secret in broker.log()]


def test_what_an_ottla_broker_keeps_holds_over_sasl_ssl(written: Written) -> None:
    report = written.report
    assert report["holds"], report["examples"]
    assert report["checks"] == dict.fromkeys(KINDS, 0)
    assert report["records"] == ROWS == sum(map(len, written.records))
    assert sum(row["records"] for row in report["measurements"]["partitions"]) == ROWS
    assert [row for name in ("throughput", "latency") for row in report["measurements"][name] if row["second"] < 0] == []
    every_second = [row["second"] for row in report["measurements"]["throughput"]]
    assert every_second == list(range(len(every_second)))  # also those in which nothing moved
    assert {len(record.value) for partition in written.records for record in partition} == {100}


def test_the_report_is_a_page_that_needs_nothing_else(written: Written) -> None:
    page = (written.plan.report / "report.html").read_text(encoding="utf-8")
    assert "Everything holds: 2,000 rows" in page
    assert page.count("<svg") == 3
    assert all(f"<td>{kind}</td>" in page and html.escape(meaning) in page for kind, meaning in KINDS.items())
    assert "://" not in page
    report = json.loads((written.plan.report / "report.json").read_text(encoding="utf-8"))
    assert report["holds"] is True
    for frame in ("findings", "throughput", "latency", "partitions", "batches"):
        assert list((written.plan.report / frame).glob("*.parquet")), frame
    assert not list(written.plan.report.glob("*work*"))


class Wrong(NamedTuple):
    """A finding that there must be. The offset is where the record stands at last: other changes may move it."""

    kind: str
    partition: int
    record: Record

    def found_in(self, partitions: Partitions) -> dict[str, Any]:
        """The cells of the finding, which name the record."""
        sequence = None if self.record.value == STRANGE else self.record.sequence
        cells = {"kind": self.kind, "sequence": sequence, "partition": self.partition}
        if self.kind == "missing":
            return {**cells, "key": self.record.key.decode()}
        return {**cells, "offset": max(at for at, record in enumerate(partitions[self.partition]) if record is self.record)}


Change = Callable[[Partitions], Wrong]
STRANGE = b"what is this?"


def on_a_wrong_partition(partitions: Partitions) -> Wrong:
    record = partitions[0].pop()
    earlier = [i for i, other in enumerate(partitions[1]) if other.stream == record.stream and other.sequence < record.sequence]
    partitions[1].insert(max(earlier, default=-1) + 1, record)
    return Wrong("misplaced", 1, record)


def dropped(partitions: Partitions) -> Wrong:
    return Wrong("missing", 1, partitions[1].pop(100))


def cut_off(partitions: Partitions) -> Wrong:
    return Wrong("missing", 0, partitions[0].pop())


def duplicated(partitions: Partitions) -> Wrong:
    twice = partitions[0][50]
    partitions[0].append(twice)
    return Wrong("duplicated", 0, twice)


def swapped(partitions: Partitions) -> Wrong:
    at = next(at for at in range(60, 500) if partitions[0][at].stream == partitions[0][at + 1].stream)
    partitions[0][at : at + 2] = reversed(partitions[0][at : at + 2])
    return Wrong("out of order", 0, partitions[0][at + 1])


def swapped_with_the_same_key(partitions: Partitions) -> Wrong:
    first, second = next(
        (i, j)
        for i, one in enumerate(partitions[2])
        for j, other in enumerate(partitions[2])
        if i < j and (one.stream, one.key) == (other.stream, other.key)
    )
    partitions[2][first], partitions[2][second] = partitions[2][second], partitions[2][first]
    return Wrong("key out of order", 2, partitions[2][second])


def corrupted(partitions: Partitions) -> Wrong:
    record = partitions[1][33]
    partitions[1][33] = record._replace(value=record.value[:-1] + bytes([record.value[-1] ^ 1]))
    return Wrong("corrupted", 1, partitions[1][33])


def of_somebody_else(partitions: Partitions) -> Wrong:
    partitions[2].append(partitions[2][0]._replace(value=STRANGE))
    return Wrong("corrupted", 2, partitions[2][-1])


def said_anew(record: Record, *, run: bytes = b"", stream: bytes = b"", event_ms: int = 0) -> Record:
    """The record with another run, stream or event time in its value, and a checksum that fits."""
    fields = record.value.split(b"|", 5)
    head = b"|".join([run or fields[0], stream or fields[1], fields[2], str(event_ms).encode() if event_ms else fields[3]])
    checksum = zlib.crc32(b"|".join([head + record.key, fields[5]]))
    return record._replace(value=b"%s|%08x|%s" % (head, checksum, fields[5]))


def of_another_run(partitions: Partitions) -> Wrong:
    partitions[2].append(said_anew(partitions[2][7], run=b"0badcafe"))
    return Wrong("foreign", 2, partitions[2][-1])


def of_a_stream_that_has_no_such_row(partitions: Partitions) -> Wrong:
    partitions[2].append(said_anew(partitions[2][7], stream=b"000099"))
    return Wrong("foreign", 2, partitions[2][-1])


def of_a_time_before(partitions: Partitions) -> Wrong:
    at = next(at for at in range(300, 500) if partitions[0][at].stream == partitions[0][at - 1].stream)
    partitions[0][at] = partitions[0][at]._replace(timestamp=partitions[0][at].timestamp - 60_000)
    return Wrong("time went back", 0, partitions[0][at])


def of_a_time_to_come(partitions: Partitions) -> Wrong:
    record = partitions[1][200]
    partitions[1][200] = said_anew(record, event_ms=record.timestamp + 3_600_000)
    return Wrong("in the future", 1, partitions[1][200])


CHANGES = [
    cut_off,
    on_a_wrong_partition,
    dropped,
    duplicated,
    swapped,
    swapped_with_the_same_key,
    corrupted,
    of_somebody_else,
    of_another_run,
    of_a_stream_that_has_no_such_row,
    of_a_time_before,
    of_a_time_to_come,
]


def verified(spark: SparkSession, written: Written, partitions: Partitions, topic: str, folder: Path) -> dict[str, Any]:
    """The report on a topic with these records."""
    make_topic(written.broker.bootstrap, topic, partitions=PARTITIONS)
    write(written.broker.bootstrap, topic, partitions)
    return validated(spark, verify_only(written.plan, topic, folder / "report"))


def test_records_that_are_wrong_are_named_with_sequence_and_offset(spark: SparkSession, written: Written, tmp_path: Path) -> None:
    partitions = [list(records) for records in written.records]
    wrong = [change(partitions) for change in CHANGES]

    report = verified(spark, written, partitions, "wrong", tmp_path)

    for one in wrong:
        expected = one.found_in(partitions)
        assert len([example for example in report["examples"] if expected.items() <= example.items()]) == 1, (expected, report["examples"])
    (strange,) = (example for example in report["examples"] if example["kind"] == "corrupted" and example["sequence"] is None)
    assert strange["detail"] == "no row can be read from it: it is damaged, or somebody else's"
    exact = {"missing": 2, "duplicated": 1, "corrupted": 2, "misplaced": 1, "foreign": 2, "in the future": 1, "gap": 0, "read twice": 0}
    assert {kind: report["checks"][kind] for kind in exact} == exact
    assert not report["holds"]
    assert "It does not hold" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


@deep
@pytest.mark.parametrize("change", CHANGES)
def test_one_record_is_named_with_its_sequence_and_offset(spark: SparkSession, written: Written, tmp_path: Path, change: Change) -> None:
    partitions = [list(records) for records in written.records]
    wrong = change(partitions)

    report = verified(spark, written, partitions, change.__name__, tmp_path)

    assert not report["holds"]
    expected = wrong.found_in(partitions)
    named = [example for example in report["examples"] if expected.items() <= example.items()]
    assert len(named) == 1, report["examples"]
    kinds = {example["kind"] for example in report["examples"]}
    assert kinds <= {wrong.kind, "out of order", "key out of order", "time went back"}
    if "out of order" not in wrong.kind:
        assert report["examples"] == named
    assert wrong.kind in report["verdict"]


@deep
def test_a_dropped_record_is_said_to_belong_behind_the_offset_before_it(spark: SparkSession, written: Written, tmp_path: Path) -> None:
    partitions = [list(records) for records in written.records]
    at = next(at for at in range(100, 500) if partitions[0][at].stream == partitions[0][at - 1].stream)
    lost = partitions[0].pop(at)
    (found,) = verified(spark, written, partitions, "behind", tmp_path)["examples"]
    before = max(i for i, record in enumerate(partitions[0]) if record.stream == lost.stream and record.sequence < lost.sequence)
    assert found["detail"].endswith(f"behind offset {before}")


@deep
def test_a_topic_without_any_record_of_the_run_has_a_report(spark: SparkSession, written: Written, tmp_path: Path) -> None:
    strange = [record._replace(value=STRANGE) for record in written.records[0][:20]]
    report = verified(spark, written, [strange, [], []], "strange", tmp_path)
    assert report["checks"] == {**dict.fromkeys(KINDS, 0), "missing": ROWS, "corrupted": 20}
    assert (tmp_path / "report" / "report.html").read_text(encoding="utf-8").count("<svg") == 2  # how long ago they were made is no latency


def segment(records: list[Record]) -> bytes:
    """A log with a transaction's marker at offset 100, nothing at 101, and the records at the other offsets."""
    placed = [(n if n < 100 else n + 2, record) for n, record in enumerate(records)]
    made = [record_reader.Record(offset, record.timestamp, record.key, record.value) for offset, record in placed]
    commit = EndTransactionMarker(ControlRecordType.COMMIT, 0)
    marker = build_end_transaction_marker(
        commit, timestamp=made[99].timestamp, producer_id=7, producer_epoch=0, base_offset=100, partition_leader_epoch=0
    )
    return b"".join([build_batch(made[:100], partition_leader_epoch=0), marker, build_batch(made[100:], partition_leader_epoch=0)])


@deep
def test_the_marker_of_a_transaction_is_no_gap_but_an_offset_at_which_nothing_stands_is_one(
    spark: SparkSession, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_AT_ONCE", 1)
    with a_broker(tmp_path / "broker") as broker:
        make_topic(broker.bootstrap, "gaps", partitions=PARTITIONS)
        broker.kill()
        (tmp_path / "broker" / "data" / "gaps-0" / f"{0:020}.log").write_bytes(segment(written.records[0]))
        broker.start()
        write(broker.bootstrap, "gaps", [[], *written.records[1:]])
        plan = replace(verify_only(written.plan, "gaps", tmp_path / "re[p]ort"), bootstrap=broker.bootstrap)
        report = validated(spark, plan)
    (gap,) = report["examples"]
    assert (gap["kind"], gap["partition"], gap["offset"]) == ("gap", 0, 101)
    assert report["records"] == ROWS


EACH = 25


def write_in_transactions(bootstrap: str, topic: str, partitions: Partitions) -> int:
    """Write records as they are, some in each transaction; how many markers that makes."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(60)
    markers = 0
    for number, records in enumerate(partitions):
        for at in range(0, len(records), EACH):
            producer.begin_transaction()
            for record in records[at : at + EACH]:
                producer.produce(topic, record.value, record.key, number, timestamp=record.timestamp)
            producer.commit_transaction(60)
            markers += 1
    return markers


@deep
@needs_apache_kafka[1]
def test_as_many_transactions_as_there_may_be_leave_no_gap(
    spark: SparkSession, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of Apache Kafka: more markers than the driver holds at once."""
    monkeypatch.setattr(verify, "_AT_ONCE", 30)
    with ApacheKafka(tmp_path / "kafka", config={"transaction.state.log.num.partitions": "1"}) as kafka:
        make_topic(kafka.bootstrap, "transactions", partitions=PARTITIONS)
        markers = write_in_transactions(kafka.bootstrap, "transactions", written.records)
        assert markers >= ROWS // EACH
        plan = replace(verify_only(written.plan, "transactions", tmp_path / "report"), bootstrap=kafka.bootstrap)
        report = validated(spark, plan, tmp_path / "console")
    assert report["holds"], report["examples"]
    assert report["records"] == ROWS
    assert f"{ROWS:,} records read, " in (tmp_path / "console").read_text()  # without the markers
    ends = [row["last_offset"] for row in report["measurements"]["partitions"]]
    assert sum(ends) == ROWS + markers - 2 * PARTITIONS  # the marker behind the last record is none of them
