"""`ottla transactions` beside kafka-transactions.sh: both see the same transactions of the same broker, and end them."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.apache_kafka import ApacheKafka, a_leaving_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.batches import a_batch
from tests.support.broker_process import eventually
from tests.support.command_line import CommandLine
from tests.support.wire_client import a_wire_client

pytestmark = [*needs_apache_kafka, pytest.mark.slow]

SECONDS = 30
HOUR_MS = 3_600_000
UNKNOWN_PRODUCER = 4711
Apaches = Callable[..., list[dict[str, str]]]


@pytest.fixture(scope="module")
def bootstrap(kafka: ApacheKafka) -> str:
    return kafka.bootstrap


@pytest.fixture
def orders(ottla: CommandLine, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with two partitions."""
    name = request.node.name.partition("[")[0]
    ottla("topics", "create", name, "-p", "2")
    return str(name)


def an_open_transaction(bootstrap: str, transactional_id: str, topic: str, *partitions: int) -> Producer:
    """A producer that has written a record to each partition and has not committed."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, b"undecided", partition=partition)
    assert producer.flush(SECONDS) == 0
    return producer


def a_hanging_transaction(bootstrap: str, topic: str, partition: int, *, minutes_ago: int = 60) -> int:
    """A transactional batch of a producer that no coordinator has heard of. Returns the time of its last record."""
    timestamp = int(time.time() * 1000) - minutes_ago * 60_000
    batch = a_batch(1, producer_id=UNKNOWN_PRODUCER, transactional=True, timestamps=[timestamp])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=bytes(batch))])
    with a_wire_client(int(bootstrap.rpartition(":")[2])) as client:
        answer = client.ask(ProduceRequest(transactional_id="gone", acks=-1, timeout_ms=10_000, topic_data=[data]), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer
    return timestamp


@pytest.fixture(scope="module")
def apaches(bootstrap: str) -> Iterator[Apaches]:
    """The table of kafka-transactions.sh for these arguments, by the names of its columns."""
    with a_leaving_tool("org.apache.kafka.tools.TransactionsCommand", bootstrap) as run:

        def table(*arguments: str) -> list[dict[str, str]]:
            ended = run(*arguments)
            assert ended.returncode == 0, ended
            lines = [[cell.strip() for cell in line.split("\t")[:-1]] for line in ended.stdout.splitlines()]
            return [dict(zip(lines[0], cells, strict=True)) for cells in lines[1:]]

        yield table


def of(transactional_id: str, listed: list[dict[str, Any]], column: str = "transactional_id") -> dict[str, Any]:
    (found,) = (each for each in listed if each[column] == transactional_id)
    return found


def test_both_list_the_same_transactional_ids(bootstrap: str, ottla: CommandLine, orders: str, apaches: Apaches) -> None:
    an_open_transaction(bootstrap, "listed-open", orders, 0)
    an_open_transaction(bootstrap, "listed-ended", orders, 1).commit_transaction(SECONDS)
    eventually(lambda: "listed-ended" in ottla("transactions", "list", "--state", "CompleteCommit").out, SECONDS)
    ours = ottla("transactions", "list", "--json").json
    theirs = apaches("list")
    assert {tuple(str(cell) for cell in each.values()) for each in ours} == {tuple(each.values()) for each in theirs}
    assert of("listed-open", ours)["state"] == "Ongoing"
    assert ["listed-open", "0", str(of("listed-open", ours)["producer_id"]), "Ongoing"] in ottla("transactions", "list").rows


def test_the_list_is_filtered_by_state_producer_and_duration(bootstrap: str, ottla: CommandLine, orders: str) -> None:
    an_open_transaction(bootstrap, "filtered", orders, 0)
    producer_id = str(of("filtered", ottla("transactions", "list", "--state", "ongoing", "--json").json)["producer_id"])
    assert ottla("transactions", "list", "--producer-id", producer_id).rows == [["filtered", "0", producer_id, "Ongoing"]]
    assert ottla("transactions", "list", "--producer-id", producer_id, "--state", "Dead", "--state", "Empty").rows == []
    assert ottla("transactions", "list", "--producer-id", producer_id, "--longer-than", "1h").rows == []
    eventually(lambda: ottla("transactions", "list", "--producer-id", producer_id, "--longer-than", "1ms").rows != [], SECONDS)
    assert "'soon' is not a duration" in ottla("transactions", "list", "--longer-than", "soon", status=2).err
    assert "is not one of" in ottla("transactions", "list", "--state", "sleeping", status=2).err


def test_both_describe_the_same_transaction(bootstrap: str, ottla: CommandLine, orders: str, apaches: Apaches) -> None:
    producer = an_open_transaction(bootstrap, "described", orders, 1, 0)
    (ours,) = ottla("transactions", "describe", "described", "--json").json
    (theirs,) = apaches("describe", "--transactional-id", "described")
    assert ours["partitions"] == [{"topic": orders, "partition": 0}, {"topic": orders, "partition": 1}]
    assert set(theirs["TopicPartitions"].split(",")) == {f"{orders}-0", f"{orders}-1"}
    names = {
        "coordinator": "CoordinatorId",
        "producer_id": "ProducerId",
        "producer_epoch": "ProducerEpoch",
        "state": "TransactionState",
        "timeout_ms": "TransactionTimeoutMs",
        "start_time_ms": "CurrentTransactionStartTimeMs",
    }
    assert {name: str(ours[name]) for name in names} == {name: theirs[column] for name, column in names.items()}
    assert 0 <= ours["open_for_ms"] <= int(theirs["TransactionDurationMs"])
    producer.commit_transaction(SECONDS)
    eventually(lambda: ottla("transactions", "describe", "described").rows[0][4] == "CompleteCommit", SECONDS)
    assert ottla("transactions", "describe", "described").rows[0][-3:] == [theirs["CurrentTransactionStartTimeMs"], "-", "-"]


def test_an_unknown_transactional_id_is_one_line(ottla: CommandLine) -> None:
    for command in ("describe", "forget"):
        refused = ottla("transactions", command, "nobody", status=1).err
        assert refused == "ottla: transactional id nobody: there is no such transactional id (TRANSACTIONAL_ID_NOT_FOUND)\n"
    assert "nobody" not in ottla("transactions", "list").out


def test_both_describe_the_same_producers(bootstrap: str, ottla: CommandLine, orders: str, apaches: Apaches) -> None:
    an_open_transaction(bootstrap, "remembered", orders, 0)
    timestamp = a_hanging_transaction(bootstrap, orders, 0)
    ottla("produce", "-p", "0", orders, input="plain\n")
    ours = ottla("transactions", "producers", f"{orders}:0", "--json").json
    theirs = apaches("describe-producers", "--topic", orders, "--partition", "0")
    named = [
        ("producer_id", "ProducerId"),
        ("producer_epoch", "ProducerEpoch"),
        ("coordinator_epoch", "LatestCoordinatorEpoch"),
        ("last_sequence", "LastSequence"),
        ("last_timestamp", "LastTimestamp"),
    ]
    assert {tuple(str(each[name]) for name, _ in named) for each in ours} == {tuple(each[name] for _, name in named) for each in theirs}
    assert [each["start_offset"] for each in ours] == [0, 1, None]
    row = [orders, "0", str(UNKNOWN_PRODUCER), "0", "-1", "0", str(timestamp), "1"]
    shown = ottla("transactions", "producers", orders, "--open")
    assert len(shown.rows) == 2
    assert shown.rows[1] == row
    assert ottla("transactions", "producers", f"{orders}:0", "--open", "--broker", "0").rows == shown.rows
    assert ottla("transactions", "producers", orders, "--broker", "5", status=1).err == "ottla: there is no broker 5; alive are 0\n"
    assert "there is no such topic" in ottla("transactions", "producers", "nowhere", status=1).err
    assert "has no partition 7: its last one is 1" in ottla("transactions", "producers", f"{orders}:7", status=1).err


def test_both_find_the_same_hanging_transactions(bootstrap: str, ottla: CommandLine, orders: str, apaches: Apaches) -> None:
    an_open_transaction(bootstrap, "not-hanging", orders, 1)
    timestamp = a_hanging_transaction(bootstrap, orders, 1)
    a_hanging_transaction(bootstrap, orders, 0, minutes_ago=5)
    row = [orders, "1", str(UNKNOWN_PRODUCER), "0", "-1", "0", str(timestamp), "1", "60", "-"]
    assert ottla("transactions", "find-hanging", orders).rows == [row]
    assert row in ottla("transactions", "find-hanging", "--broker", "0").rows
    (theirs,) = apaches("find-hanging", "--topic", orders)
    columns = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch")
    assert [theirs[name] for name in columns] == row[:5]
    assert (theirs["StartOffset"], theirs["LastTimestamp"]) == ("1", str(timestamp))
    both = ottla("transactions", "find-hanging", orders, "--max-transaction-timeout", "1m", "--json").json
    assert [(each["partition"], each["start_offset"], each["transactional_id"]) for each in both] == [(0, 0, None), (1, 1, None)]
    assert "Name topics or give --broker" in ottla("transactions", "find-hanging", status=2).err


@pytest.mark.parametrize(
    "identity",
    [("--start-offset", "1"), ("--producer-id", str(UNKNOWN_PRODUCER), "--producer-epoch", "0", "--coordinator-epoch", "-1")],
    ids=["by offset", "by producer"],
)
def test_an_aborted_transaction_no_longer_holds_readers_back(
    ottla: CommandLine, bootstrap: str, identity: tuple[str, ...], apaches: Apaches
) -> None:
    topic = f"aborted-{identity[0].strip('-')}"
    ottla("topics", "create", topic)
    ottla("produce", topic, input="before\n")
    a_hanging_transaction(bootstrap, topic, 0)
    ottla("produce", topic, input="after\n")
    assert ottla("consume", "-e", "--read-committed", topic).lines == ["before"]
    aborted = ottla("transactions", "abort", f"{topic}:0", *identity)
    assert aborted.out == f"{topic}-0: the transaction of producer {UNKNOWN_PRODUCER} is aborted\n"
    assert ottla("consume", "-e", "--read-committed", topic).lines == ["before", "after"]
    assert ottla("transactions", "producers", topic, "--open").rows == []
    assert apaches("find-hanging", "--topic", topic) == []
    again = ottla("transactions", "abort", f"{topic}:0", "--start-offset", "1", status=1).err
    assert again == f"ottla: {topic}-0 has no open transaction that begins at offset 1\n"


def test_what_kafka_transactions_aborts_is_gone_for_both(ottla: CommandLine, bootstrap: str, orders: str, apaches: Apaches) -> None:
    a_hanging_transaction(bootstrap, orders, 0)
    apaches("abort", "--topic", orders, "--partition", "0", "--start-offset", "0")
    assert ottla("transactions", "find-hanging", orders).rows == []


def test_an_abort_with_a_stale_producer_epoch_is_refused(ottla: CommandLine, bootstrap: str, orders: str) -> None:
    an_open_transaction(bootstrap, "bumped", orders, 0)
    ottla("transactions", "forget", "bumped")
    (known,) = ottla("transactions", "producers", f"{orders}:0", "--json").json
    identity = ("--producer-id", str(known["producer_id"]), "--producer-epoch", "0", "--coordinator-epoch", "0")
    (line,) = ottla("transactions", "abort", f"{orders}:0", *identity, status=1).err.splitlines()
    assert line.startswith(f"ottla: {orders}-0: ")
    assert line.endswith("(INVALID_PRODUCER_EPOCH)")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("t:0",), "Give either --start-offset, or all of"),
        (("t:0", "--start-offset", "1", "--producer-id", "0"), "Give either --start-offset, or all of"),
        (("t:0", "--producer-id", "1", "--producer-epoch", "0"), "Give either --start-offset, or all of"),
        (("t:0-1", "--start-offset", "1"), "is not one partition"),
        (("t:0", "--start-offset", "-1"), "is not in the range"),
    ],
)
def test_an_abort_names_one_transaction(ottla: CommandLine, arguments: tuple[str, ...], expected: str) -> None:
    assert expected in ottla("transactions", "abort", *arguments, status=2).err


def test_a_forgotten_transaction_is_aborted_and_its_producer_fenced(ottla: CommandLine, bootstrap: str, orders: str) -> None:
    producer = an_open_transaction(bootstrap, "forgotten", orders, 0, 1)
    forgotten = ottla("transactions", "forget", "forgotten", "nobody", status=1)
    assert forgotten.out == "forgotten: its transaction is aborted if it was open, and its producers are fenced\n"
    assert len(forgotten.err.splitlines()) == 1
    assert ottla("transactions", "producers", orders, "--open").rows == []
    assert ottla("consume", "-e", "--read-committed", orders).lines == []
    with pytest.raises(KafkaException, match=r"FENCED|fenced"):
        producer.commit_transaction(SECONDS)
    (described,) = ottla("transactions", "describe", "forgotten", "--json").json
    assert (described["state"], described["timeout_ms"], described["partitions"]) == ("Empty", 60_000, [])
