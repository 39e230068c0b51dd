"""Apache Kafka's tools do all they can for transactions: kafka-transactions.sh every command, DumpLogSegments every record."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.transactions.conftest import create_topic
from tests.support.apache_kafka import a_leaving_tool, run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.judged_broker import JudgedBroker, a_judged_broker
from tests.support.transaction_requests import Owner, Scene

pytestmark = needs_apache_kafka

Run = Callable[..., subprocess.CompletedProcess[str]]
DUMP = "kafka.tools.DumpLogSegments"
SECONDS = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgedBroker]:
    """Without verification of partitions, so that a transaction can be left hanging."""
    with a_judged_broker(tmp_path_factory.mktemp("broker"), transaction_partition_verification_enable="false") as started:
        yield started


@pytest.fixture(scope="module")
def scene(broker: JudgedBroker) -> Iterator[Scene]:
    """A connection for all tests of the module."""
    with Scene(broker.port) as connected:
        connected.find_coordinators()
        yield connected


@pytest.fixture
def owner(scene: Scene, broker: JudgedBroker, name: str) -> Iterator[Owner]:
    """A producer with an open transaction in both partitions of the topic of its name, and a record in the first."""
    create_topic(broker, name, 2)
    made = scene.owner(name)
    assert scene.add(made, name, 0, 1) == [0, 0]
    assert scene.write(made, name) == 0
    yield made
    scene.owner(name)


@pytest.fixture(scope="module")
def run(broker: JudgedBroker) -> Iterator[Run]:
    """Runs kafka-transactions.sh."""
    with a_leaving_tool("org.apache.kafka.tools.TransactionsCommand", broker.bootstrap) as tool:
        yield tool


def table(run: Run, *arguments: str) -> list[dict[str, str]]:
    """What a command prints, each row by the names of the columns."""
    done = run(*arguments)
    assert done.returncode == 0, done
    header, *rows = [line.split("\t") for line in done.stdout.splitlines() if line.strip()]
    names = [name.strip() for name in header]
    return [dict(zip(names, (cell.strip() for cell in row), strict=True)) for row in rows]


def test_transactions_are_listed(owner: Owner, run: Run) -> None:
    mine = {
        "TransactionalId": owner.transactional_id,
        "Coordinator": "0",
        "ProducerId": str(owner.producer_id),
        "TransactionState": "Ongoing",
        "": "",
    }
    assert mine in table(run, "list")
    assert mine in table(run, "list", "--duration-filter", "1")
    assert mine not in table(run, "list", "--duration-filter", "3600000")


def test_a_transaction_is_described(owner: Owner, run: Run) -> None:
    (row,) = table(run, "describe", "--transactional-id", owner.transactional_id)
    assert int(row.pop("CurrentTransactionStartTimeMs")) > 0
    assert int(row.pop("TransactionDurationMs")) >= 0
    assert {*row.pop("TopicPartitions").split(",")} == {f"{owner.transactional_id}-{partition}" for partition in range(2)}
    assert row == {
        "CoordinatorId": "0",
        "TransactionalId": owner.transactional_id,
        "ProducerId": str(owner.producer_id),
        "ProducerEpoch": str(owner.epoch),
        "TransactionState": "Ongoing",
        "TransactionTimeoutMs": "60000",
        "": "",
    }


def test_an_unknown_transactional_id_is_named(run: Run) -> None:
    done = run("describe", "--transactional-id", "no-such-id")
    assert done.returncode == 1
    assert "the ID could not be found" in done.stderr


def test_producers_of_a_partition_are_described(scene: Scene, owner: Owner, run: Run) -> None:
    where = ("--topic", owner.transactional_id, "--partition", "0")
    (row,) = table(run, "describe-producers", *where)
    assert row == {
        "ProducerId": str(owner.producer_id),
        "ProducerEpoch": str(owner.epoch),
        "LatestCoordinatorEpoch": "-1",
        "LastSequence": "0",
        "LastTimestamp": "1700000000000",
        "CurrentTransactionStartOffset": "0",
        "": "",
    }
    assert scene.end(owner, commit=True) == 0
    scene.wait_until_completed(owner.transactional_id)
    (row,) = table(run, "describe-producers", *where)
    assert (row["CurrentTransactionStartOffset"], row["LatestCoordinatorEpoch"], row["LastSequence"]) == ("None", "0", "0")


@pytest.mark.soak
def test_a_hanging_transaction_is_found_and_aborted(scene: Scene, owner: Owner, run: Run) -> None:
    topic = owner.transactional_id
    assert not [row for row in table(run, "find-hanging", "--broker-id", "0") if row["Topic"] == topic]
    assert scene.end(owner, commit=True) == 0
    scene.wait_until_completed(topic)
    assert scene.write(owner, topic, sequence=1) == 0, "a late record, and nobody knows of its transaction"
    assert not scene.holds_nothing_back(topic)

    for asked in (("--broker-id", "0"), ("--topic", topic), ("--topic", topic, "--partition", "0")):
        (row,) = [row for row in table(run, "find-hanging", *asked) if row["Topic"] == topic]
        assert (row["Partition"], row["ProducerId"], row["ProducerEpoch"], row["CoordinatorEpoch"], row["StartOffset"]) == (
            "0",
            str(owner.producer_id),
            str(owner.epoch),
            "0",
            "2",
        )
    abort = ("abort", "--topic", topic, "--partition", "0", "--start-offset")
    wrong, right = (run(*abort, offset) for offset in ("1", "2"))
    assert wrong.returncode == 1
    assert "Could not find any open transactions starting at offset 1" in wrong.stderr
    assert right.returncode == 0, right
    assert scene.holds_nothing_back(topic)
    assert table(run, "find-hanging", "--topic", topic) == []


def dumped(directory: Path, *options: str) -> list[str]:
    """What DumpLogSegments says of all segments of a partition."""
    segments = ",".join(map(str, sorted(directory.glob("*.log"))))
    done = run_tool(DUMP, "--files", segments, "--deep-iteration", *options)
    assert done.returncode == 0, done
    assert "isvalid: false" not in done.stdout
    return done.stdout.splitlines()


def test_the_logs_of_transactions_are_decoded(scene: Scene, owner: Owner, broker: JudgedBroker) -> None:
    topic = owner.transactional_id
    assert scene.end(owner, commit=True) == 0
    scene.wait_until_completed(topic)
    assert scene.add(owner, topic, 0) == [0]
    assert scene.write(owner, topic, sequence=1) == 0
    assert scene.end(owner, commit=False) == 0
    scene.wait_until_completed(topic)

    markers = [line for line in dumped(broker.data / f"{topic}-0", "--print-data-log") if "endTxnMarker" in line]
    assert [re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", line) for line in markers] == [[("COMMIT", "0")], [("ABORT", "0")]]

    told: list[str] = []

    def is_written() -> bool:
        told[:] = [
            line.partition("payload: ")[2]
            for partition in sorted(broker.data.glob("__transaction_state-*"))
            for line in dumped(partition, "--transaction-log-decoder")
            if f"transaction_metadata::transactionalId={topic} " in line
        ]
        return len(told) == 7

    eventually(is_written, SECONDS, "both transactions are written whole")
    both = {f"[{topic}-0,{topic}-1]", f"[{topic}-1,{topic}-0]"}
    states = [re.search(r"state=(\w+),partitions=(\[.*?\]),txnLastUpdateTimestamp=\d+,txnTimeoutMs=60000$", line) for line in told]
    found = [(each[1], "both" if each[2] in both else each[2]) for each in states if each]
    assert found == [
        ("Empty", "[]"),
        ("Ongoing", "both"),
        ("PrepareCommit", "both"),
        ("CompleteCommit", "[]"),
        ("Ongoing", f"[{topic}-0]"),
        ("PrepareAbort", f"[{topic}-0]"),
        ("CompleteAbort", "[]"),
    ]
    assert all(line.startswith(f"producerId:{owner.producer_id},producerEpoch:{owner.epoch},") for line in told)
