"""Examples of Python clients, written by the authors of the clients, on brokers of pytest-ottla."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import confluent_kafka
import pytest

from pytest_ottla import Broker
from tests.support.broker_process import eventually
from tests.support.certificates import Identity
from tests.support.neighbours.artifacts import whole
from tests.support.neighbours.python_examples import HARD_CODED, Example, examples_of, faust

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PASSPHRASE = "123123"
"""It is in the example."""


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for one example: the names of topics are the examples'."""
    with Broker(tmp_path_factory.mktemp("broker")) as found:
        yield found


# ---- faust-streaming


def worker(folder: Path, broker: Broker, name: str, *arguments: str) -> Example:
    """A worker, or another command, of an example of faust-streaming. It has one broker and tables in memory."""
    found = faust()
    source = found / "examples" / f"{name}.py"
    text = source.read_text(encoding="utf-8")
    address = f"kafka://{broker.bootstrap_servers}"
    old = re.search(r"(broker ?= ?|KAFKA = )'\w+://[\w:]*'", text)
    if old is not None:
        changes = {old[0]: f"{old[1]}'{address}'"}
    else:
        begin = re.search(r"faust\.App\(\s*['\"][\w-]+['\"]", text)
        assert begin is not None
        changes = {begin[0]: f"{begin[0]}, broker='{address}'"}
    if "rocksdb://" in text:
        changes["rocksdb://"] = "memory://"
    command = arguments or ("worker", "--loglevel", "info", "--without-web")
    return Example(folder, source, *command, replaced=changes, python=str(found / "bin" / "python"))


@whole
def test_a_worker_of_faust_prints_its_greetings(tmp_path: Path, broker: Broker) -> None:
    broker.create_topic("greetings")  # the assignor of faust leaves out a topic that does not exist yet, as with Apache Kafka
    with worker(tmp_path, broker, "hello_world") as example:
        example.says("hello 99")
        example.interrupt()
    assert len(broker.consume("greetings", 100)) == 100


@whole
def test_a_worker_of_faust_counts_words_in_a_table_with_a_changelog(tmp_path: Path, broker: Broker) -> None:
    broker.create_topic("posts", 8)
    with worker(tmp_path, broker, "word_count") as example:
        example.says("Worker ready")
        changelog = example.says(r"[\w-]+-word_counts-changelog")[0]
        changes = broker.consume(changelog, 4000, timeout=120)
        assert {(each.key, each.value) for each in changes} >= {(b'"%s"' % word, b"1000") for word in (b"the", b"quick", b"brown", b"fox")}
        example.interrupt()
    with worker(tmp_path, broker, "word_count") as example:  # the table comes from the changelog
        example.says(r"(?s)Restore complete!(.*?\| +[12]\d\d\d ){4}")
        example.interrupt()


@whole
def test_commands_of_faust_send_to_the_agents_of_a_worker(tmp_path: Path, broker: Broker) -> None:
    (tmp_path / "command").mkdir()
    for topic in ("people_joining2", "people_leaving2"):
        broker.create_topic(topic, 4)
    with worker(tmp_path, broker, "tableofset") as example:
        example.says("Worker ready")
        for name in ("alice", "bob"):
            with worker(tmp_path / "command", broker, "tableofset", "joining", "london", name) as command:
                command.ends()
        with worker(tmp_path / "command", broker, "tableofset", "leaving", "london", "alice") as command:
            command.ends()
        example.says("Alice left london")
        example.says(r"TABLE CUR: .*bob")
        example.interrupt()


@whole
def test_faust_keeps_windows_in_a_changelog(tmp_path: Path, broker: Broker) -> None:
    (tmp_path / "command").mkdir()
    broker.create_topic("withdrawals", 4)
    with worker(tmp_path, broker, "withdrawals") as example:
        example.says("Worker ready")
        changelog = example.says(r"[\w-]+-user_to_total-changelog")[0]
        with worker(tmp_path / "command", broker, "withdrawals", "produce", "--max-latency", "0", "--max-messages", "200") as command:
            command.ends()
        assert len(broker.consume("withdrawals", 200)) == 200
        assert len(broker.consume(changelog, 200, timeout=60)) == 200
        example.interrupt()


@whole
@pytest.mark.parametrize(
    ("name", "topics", "partitions", "pattern"),
    [
        ("task_queue", ["tasks"], 1, r"(?s)Result of .*Result of .*Result of \S+ is: \d+"),
        ("windowed_aggregation", ["raw-event", "agg-event"], 1, r"processing window:\d+ events,mean: 0\.\d+"),
        ("windowing/tumbling", ["tumbling_topic"], 8, r"(?s)value\(\) should go from 1 to 5: [2-5]"),
        ("windowing/hopping", ["hopping_topic"], 8, r"(?s)value\(\) should have values between 1-3: [2-3]"),
        # Its timer ticks every 3 s, and the clock modulo 3 says whether a stage fails: one start in three sees no dead letter.
        ("bound_agent", [], 0, r"\[dead letter\] arrived|\[stage2\] action arrived"),
    ],
)
def test_an_example_of_faust_works(name: str, topics: list[str], partitions: int, pattern: str, tmp_path: Path, broker: Broker) -> None:
    for topic in topics:
        broker.create_topic(topic, partitions)
    with worker(tmp_path, broker, name) as example:
        example.says(pattern)
        example.interrupt()


# ---- aiokafka


def of_aiokafka(folder: Path, broker: Broker, name: str, given: str = "", replaced: Mapping[str, str] | None = None) -> Example:
    changes = {HARD_CODED: broker.bootstrap_servers} if replaced is None else replaced
    return Example(folder, examples_of("aiokafka") / f"{name}.py", replaced=changes, given=given)


@whole
@pytest.mark.parametrize("name", ["simple_produce", "idempotent_produce"])
def test_a_producer_of_aiokafka_goes_on(name: str, tmp_path: Path, broker: Broker) -> None:
    with of_aiokafka(tmp_path, broker, name) as example:
        example.says(r"(?s)RecordMetadata.*offset=1\b")
        example.interrupt()
    assert {each.value for each in broker.consume("test-topic", 2)} == {b"Super message"}


@whole
def test_batches_of_aiokafka_arrive(tmp_path: Path, broker: Broker) -> None:
    address = f"AIOKafkaProducer(bootstrap_servers='{broker.bootstrap_servers}')"
    with of_aiokafka(tmp_path, broker, "batch_produce", replaced={"AIOKafkaProducer()": address}) as example:
        assert "messages sent to partition" in example.ends()
    assert {each.value for each in broker.consume("my_topic", 1000)} == {b"Test message %d" % number for number in range(1000)}


@whole
def test_a_consumer_of_aiokafka_reads_what_comes(tmp_path: Path, broker: Broker) -> None:
    broker.create_topic("my_topic")
    with of_aiokafka(tmp_path, broker, "simple_consumer") as example:
        example.says("b'news'", meanwhile=lambda: broker.produce("my_topic", [b"news"]))
        example.interrupt()


@whole
def test_a_consumer_of_aiokafka_keeps_its_offsets_itself(tmp_path: Path, broker: Broker) -> None:
    broker.create_topic("test")
    changes = {HARD_CODED: broker.bootstrap_servers, '"/tmp/': f'"{tmp_path}/'}
    with of_aiokafka(tmp_path, broker, "local_state_consumer", replaced=changes) as example:
        broker.produce("test", [(b"a", b"1"), (b"b", b"2")])
        example.says("(?s)Process .* a\n.*Process .* b\n")
        state = tmp_path / "my-partition-state-test-0.json"
        eventually(lambda: state.exists() and '"last_offset": 1' in state.read_text())
        example.interrupt()
    broker.produce("test", [(b"c", b"3")])
    with of_aiokafka(tmp_path, broker, "local_state_consumer", replaced=changes) as example:
        example.says("Process .* c\n")
        example.interrupt()


@whole
def test_a_transaction_of_aiokafka_that_fails_is_aborted(tmp_path: Path, broker: Broker) -> None:
    with of_aiokafka(tmp_path, broker, "transactional_produce", given="\n") as example:
        assert "ValueError" in example.ends(1)
    assert [each.value for each in broker.consume("test-topic", 1)] == [b"Super transactional message"]
    assert committed(broker, "test-topic") == []


def committed(broker: Broker, topic: str) -> list[bytes]:
    """The values of a partition that readers of committed records see."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer(settings | {"isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(message.value() or b"")
    consumer.close()
    assert message is not None
    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
    return found


@whole
def test_tls_of_aiokafka_works_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    authority = Identity("CN=authority")
    server, client = Identity("CN=localhost", authority), Identity("CN=client", authority)
    (tmp_path / "ca-cert").write_text(authority.certificate_pem)
    (tmp_path / "cert-signed").write_text(client.certificate_pem)
    (tmp_path / "cert-key").write_text(client.key_pem(PASSPHRASE))
    (tmp_path / "server.pem").write_text(server.key_pem() + server.certificate_pem)
    settings = {
        "listeners": "SSL://localhost:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca-cert"),
        "ssl.client.auth": "required",
        "security.inter.broker.protocol": "SSL",
    }
    with Broker(tmp_path / "broker", **settings) as broker:
        changes = {"localhost:9093": broker.bootstrap_servers}
        with of_aiokafka(tmp_path, broker, "ssl_consume_produce", replaced=changes) as example:
            assert "Success" in example.ends()


# ---- confluent-kafka


def of_confluent(folder: Path, name: str, *arguments: str, given: str = "") -> Example:
    return Example(folder, examples_of("confluent-kafka-python") / f"{name}.py", *arguments, replaced={}, given=given)


@whole
def test_programs_of_confluent_kafka_write_read_and_show_the_lag(tmp_path: Path, broker: Broker) -> None:
    address = broker.bootstrap_servers
    with of_confluent(tmp_path, "producer", address, "orders", given="one\ntwo\n") as example:
        assert example.ends().count("Message delivered to orders") == 2
    with of_confluent(tmp_path, "consumer", address, "billing", "orders") as example:
        example.says("(?s)b'one'.*b'two'")
        example.interrupt()
    with of_confluent(tmp_path, "get_watermark_offsets", address, "billing", "orders") as example:
        assert re.search(r"orders \[0\]\s+2\s+0", example.ends())


@whole
def test_a_program_of_confluent_kafka_copies_in_transactions(tmp_path: Path, broker: Broker) -> None:
    broker.create_topic("input")
    broker.create_topic("output")
    broker.produce("input", [b"%d" % number for number in range(250)])
    with of_confluent(tmp_path, "eos_transactions", "-b", broker.bootstrap_servers, "-t", "input", "-o", "output") as example:
        assert "Committing final transaction with 50 messages" in example.ends()
    assert len(committed(broker, "output")) == 250


@whole
def test_a_program_of_confluent_kafka_with_asyncio_reads_its_own_transactions(tmp_path: Path, broker: Broker) -> None:
    broker.create_topic("orders")
    with of_confluent(tmp_path, "asyncio_example", broker.bootstrap_servers, "orders") as example:
        example.says("(?s)Produced to: orders.*Consumed: b'testvalue9'")
        example.interrupt()
        assert "End of example" in example.output


@whole
def test_a_program_of_confluent_kafka_leaves_nothing_open(tmp_path: Path, broker: Broker) -> None:
    with of_confluent(tmp_path, "context_manager_example", broker.bootstrap_servers) as example:
        assert "All examples completed successfully" in example.ends()
    with of_confluent(tmp_path, "adminapi_logger", broker.bootstrap_servers) as example:
        assert "id: context-manager-example-group" in example.ends()


ADMIN = [
    (("create_topics", "orders"), "Topic orders created"),
    (("create_partitions", "orders", "5"), "Additional partitions created for topic orders"),
    (("incremental_alter_configs", "TOPIC", "orders", "retention.ms=SET:3600000"), "configuration successfully altered"),
    (("describe_configs", "TOPIC", "orders"), r"retention.ms = 3600000"),
    (("alter_configs", "TOPIC", "orders", "retention.ms=7200000"), "configuration successfully altered"),
    (("list", "all"), r"\"orders\" with 5 partition"),
    (("list_offsets", "READ_UNCOMMITTED", "orders", "0", "LATEST"), r"(?i)offset ?: 1|offset.*1"),
    (("delete_records", "orders", "0", "1"), r"(?i)deleted|low"),
    (("alter_consumer_group_offsets", "billing", "orders", "0", "1"), r"(?i)topic: orders|orders"),
    (("list_consumer_group_offsets", "billing", "orders", "0"), r"orders"),
    (("list_consumer_groups",), "billing"),
    (("describe_consumer_groups", "0", "billing"), "billing"),
    (("describe_topics", "0", "orders"), "orders"),
    (("describe_cluster", "0"), "(?i)cluster"),
    (("elect_leaders", "PREFERRED"), "(?i)elect"),
    (("alter_user_scram_credentials", "UPSERT", "alice", "SCRAM_SHA_256", "4096", "alice-secret", "salt"), "(?i)success"),
    (("describe_user_scram_credentials",), "alice"),
    (("delete_consumer_groups", "billing"), "(?i)deleted"),
    (("delete_topics", "orders"), "Topic orders deleted"),
]
"""Operations of `adminapi.py`, in an order in which each finds what it needs, and what they say."""


@whole
def test_the_program_of_confluent_kafka_for_administrators_does_everything(tmp_path: Path, broker: Broker) -> None:
    for arguments, pattern in ADMIN:
        (folder := tmp_path / arguments[0]).mkdir()
        if arguments[0] == "list_offsets":
            broker.produce("orders", [b"x"], partition=0)
        with of_confluent(folder, "adminapi", broker.bootstrap_servers, *arguments) as example:
            said = example.ends()
        assert re.search(pattern, said), f"{arguments}: {said}"
        assert "Traceback" not in said
        assert not re.search("(?i)^failed|exception", said, re.MULTILINE), f"{arguments}: {said}"
