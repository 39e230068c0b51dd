"""The commands against a real Apache Kafka, beside its own tools: both see the same."""

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.apache_kafka import ApacheKafka, run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.command_line import CommandLine

pytestmark = [*needs_apache_kafka, pytest.mark.slow]


def test_topics_and_configurations(kafka: ApacheKafka, ottla: CommandLine) -> None:
    ottla("topics", "create", "made", "-p", "3", "-c", "retention.ms=1234567")
    described = run_tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap, "--describe", "--topic", "made"
    ).stdout
    assert "PartitionCount: 3" in described
    assert "retention.ms=1234567" in described
    topic_id = re.search(r"TopicId: (\S+)", described)
    assert topic_id is not None
    assert ottla("topics", "describe", "made", "--json").json[0]["id"] == topic_id.group(1)
    ottla("topics", "alter", "made", "-p", "4")
    ottla("configs", "alter", "topic", "made", "--set", "cleanup.policy=compact,delete", "--delete", "retention.ms")
    assert ottla("configs", "describe", "topic", "made").rows == [["cleanup.policy", "compact,delete", "DYNAMIC_TOPIC_CONFIG"]]
    ottla("configs", "alter", "broker-logger", "0", "--set", "kafka.request.logger=INFO")
    assert ["kafka.request.logger", "INFO", "DYNAMIC_BROKER_LOGGER_CONFIG"] in ottla("configs", "describe", "broker-logger", "0").rows
    assert ottla("configs", "describe", "broker", "0", "--all", "--synonyms").rows
    assert ottla("topics", "delete", "made").out == "made: deleted\n"


def test_acls_and_users(kafka: ApacheKafka, ottla: CommandLine) -> None:
    ottla("acls", "add", "User:alice", "--operation", "read", "--topic", "orders-", "--prefixed")
    listed = run_tool("kafka.admin.AclCommand", "--bootstrap-server", kafka.bootstrap, "--list").stdout
    assert "resource `ResourcePattern(resourceType=TOPIC, name=orders-, patternType=PREFIXED)`" in listed
    assert "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)" in listed
    assert ottla("acls", "list", "--topic", "orders-1", "--pattern-type", "match").rows == [
        ["topic", "orders-", "prefixed", "User:alice", "*", "read", "allow"]
    ]
    assert ottla("acls", "remove", "--principal", "User:alice").out == "allow User:alice from * to read topic orders-*: removed\n"
    ottla("users", "add", "alice", "--mechanism", "scram-sha-256", "--iterations", "8192", input="secret\n")
    users = ("--bootstrap-server", kafka.bootstrap, "--describe", "--entity-type", "users", "--entity-name", "alice")
    assert "SCRAM-SHA-256=iterations=8192" in run_tool("kafka.admin.ConfigCommand", *users).stdout
    assert ottla("users", "remove", "alice").out == "alice: removed\n"


def test_brokers_and_log_directories(kafka: ApacheKafka, ottla: CommandLine) -> None:
    ottla("topics", "create", "held", "-p", "2")
    ottla("produce", "-p", "1", "held", input="x\n")
    (broker,) = ottla("brokers", "list", "--json").json["brokers"]
    assert f"{broker['host']}:{broker['port']}" == kafka.bootstrap
    assert (broker["id"], broker["controller"], broker["behind"]) == (0, True, 0)
    (directory,) = ottla("log-dirs", "held", "--json").json
    assert (directory["broker"], directory["error"]) == (0, None)
    assert [replica["bytes"] > 0 for replica in directory["replicas"]] == [False, True]
    told = run_tool("org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", kafka.bootstrap, "--describe", "--topic-list", "held")
    assert directory["path"] in told.stdout


@pytest.mark.parametrize("kind", ["user", "client", "ip"])
def test_the_configuration_of_a_client_is_its_quotas(kafka: ApacheKafka, ottla: CommandLine, kind: str) -> None:
    name, key = ("10.0.0.7", "connection_creation_rate") if kind == "ip" else ("app", "producer_byte_rate")
    ottla("configs", "alter", kind, name, "--set", f"{key}=1000")
    assert ottla("configs", "describe", kind, name).rows == [[key, "1000"]]
    entity = ("--entity-type", f"{kind}s", "--entity-name", name)
    described = run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap, "--describe", *entity).stdout
    assert f"{key}=1000" in described
    ottla("configs", "alter", kind, name, "--delete", key)
    assert ottla("configs", "describe", kind, name, "--json").json == []


def test_records_go_where_javas_producer_puts_them(kafka: ApacheKafka, ottla: CommandLine) -> None:
    for name in ("java", "ours"):
        ottla("topics", "create", name, "-p", "5")
    lines = "".join(f"key-{number}:value {number}\n" for number in range(50))
    console = ("--property", "parse.key=true", "--property", "key.separator=:", "--topic", "java", "--bootstrap-server", kafka.bootstrap)
    assert run_tool("kafka.tools.ConsoleProducer", *console, input=lines).returncode == 0
    ottla("produce", "-K", ":", "-z", "zstd", "ours", input=lines)
    placed = {name: sorted(ottla("consume", "-e", "-f", "%p %k %s\\n", name).lines) for name in ("java", "ours")}
    assert placed["java"] == placed["ours"]
    assert len(placed["ours"]) == 50


def test_groups(kafka: ApacheKafka, ottla: CommandLine) -> None:
    ottla("topics", "create", "read", "-p", "2")
    ottla("produce", "-K", ":", "read", input="".join(f"{number}:{number}\n" for number in range(20)))
    assert len(ottla("consume", "-G", "g", "-c", "8", "read").lines) == 8
    described = ottla("groups", "describe", "g", "--json").json[0]
    tool = ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", kafka.bootstrap)
    theirs = run_tool(*tool, "--describe", "--group", "g").stdout
    rows = {tuple(line.split()[1:6]) for line in theirs.splitlines() if line.startswith("g ")}
    ours = {tuple(str(row[name]) for name in ("topic", "partition", "offset", "end", "lag")) for row in described["partitions"]}
    assert ours >= {row for row in rows if row[2] != "-"}
    assert sum(row["offset"] or 0 for row in described["partitions"]) == 8
    ottla("groups", "reset-offsets", "g", "--topic", "read", "--to-earliest", "--execute")
    assert {row["offset"] for row in ottla("groups", "offsets", "g", "--json").json} == {0}
    assert len(ottla("consume", "-G", "g", "-e", "read").lines) == 20
    assert "CURRENT-OFFSET" in run_tool(*tool, "--describe", "--group", "g").stdout
    assert ["g", "consumer", "Empty", "Classic", "0"] in ottla("groups", "list").rows
    assert ottla("groups", "delete", "g").out == "g: deleted\n"


def test_aborted_transactions_are_left_out_when_asked(kafka: ApacheKafka, ottla: CommandLine) -> None:
    ottla("topics", "create", "transactions")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce("transactions", b"%d" % number)
        assert producer.flush(30) == 0  # an abort would drop what was not sent
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(30)
    producer.begin_transaction()
    producer.produce("transactions", b"open")
    producer.flush(30)
    assert ottla("consume", "-e", "transactions").lines == ["0", "1", "2", "3", "4", "5", "open"]
    assert ottla("consume", "-e", "--read-committed", "transactions").lines == ["1", "3", "5"]
    assert ottla("consume", "-e", "-o", "5", "--read-committed", "transactions").lines == ["3", "5"]
    producer.abort_transaction(30)
    assert ottla("consume", "-e", "--read-committed", "transactions").lines == ["1", "3", "5"]


def test_offsets_and_deleted_records(ottla: CommandLine) -> None:
    ottla("topics", "create", "counted")
    ottla("produce", "--json", "counted", input="".join(f'{{"value": "{n}", "timestamp": {1_700_000_000_000 + n}}}\n' for n in range(10)))
    found = ottla("topics", "offsets", "counted", "--time", "1700000000004", "--time", "max-timestamp")
    assert found.rows == [["counted", "0", "0", "10", "10", "4", "9"]]
    assert ottla("topics", "delete-records", "counted", "-o", "3").rows == [["counted", "0", "3"]]


@pytest.mark.soak
def test_its_live_data_directory_is_sound_and_printed_as_its_own_tool_does(kafka: ApacheKafka, ottla: CommandLine, tmp_path: Path) -> None:
    ottla("topics", "create", "dumped", "-c", "segment.bytes=2000", "-c", "index.interval.bytes=100")
    ottla("produce", "-z", "lz4", "--batch-bytes", "300", "dumped", input="".join(f"line {number}\n" for number in range(500)))
    data = kafka.data_directory(0)
    (report,) = ottla("dump-log", "--verify", "--deep-iteration", "--json", str(data)).json
    assert report["live"]
    assert any(partition["records"] == 500 for partition in report["partitions"])
    for file in sorted((data / "dumped-0").glob("*.log"))[:2]:
        for options in (["--deep-iteration"], ["--print-data-log"], []):
            theirs = run_tool("kafka.tools.DumpLogSegments", "--files", str(file), *options).stdout
            assert ottla("dump-log", str(file), *options).out == theirs
