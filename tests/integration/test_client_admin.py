"""Topics and their configurations as the administration of real clients sees and changes them."""

import re
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as confluent
import pytest
from confluent_kafka import admin as confluent_admin

from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.clients import Admin, Clients, ConfluentClient, KcatClient, Record


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("admin"), log_segment_delete_delay_ms=0) as running:
        yield running


@pytest.fixture(params=Clients.admins)
def client(broker: BrokerProcess, request: pytest.FixtureRequest) -> Admin:
    return Clients.admins[request.param](broker.bootstrap)


def create_once_it_is_gone(client: Admin, name: str) -> None:
    """A deletion is answered when nobody can use the topic any more; its name is free a moment later."""

    def create() -> str:
        try:
            client.create_topic(name)
        except Exception as refused:
            return f"{type(refused).__name__} {refused}"
        return ""

    eventually(lambda: not re.search(r"AlreadyExists|ALREADY_EXISTS", create()), what="a free name")
    assert name in client.topics()


def test_a_topic_is_made_listed_grown_and_deleted(broker: BrokerProcess, client: Admin, name: str) -> None:
    client.create_topic(name, 3)
    assert client.topics()[name] == 3
    assert sorted(path.name for path in broker.data.glob(f"{name}-*")) == [f"{name}-{partition}" for partition in range(3)]

    client.grow(name, 5)
    assert client.topics()[name] == 5

    client.delete_topic(name)
    assert name not in client.topics()
    eventually(lambda: not list(broker.data.glob(f"{name}*")), what="the directories' end")


def test_what_cannot_be_is_refused(client: Admin, name: str) -> None:
    client.create_topic(name, 2)

    with pytest.raises(Exception, match=r"(?i)already.?exists"):
        client.create_topic(name, 2)
    with pytest.raises(Exception, match=r"(?i)invalid.?partitions|number of partitions"):
        client.grow(name, 1)
    with pytest.raises(Exception, match=r"(?i)unknown.?topic"):
        client.delete_topic(f"{name}.not-there")
    with pytest.raises(Exception, match=r"(?i)invalid.?config"):
        client.create_topic(f"{name}.bad", config={"retention.ms": "long"})
    with pytest.raises(Exception, match=r"(?i)invalid.?config"):
        client.alter_config(name, {"cleanup.policy": "burn"})
    assert client.topics()[name] == 2
    assert f"{name}.bad" not in client.topics()


def test_configurations_are_described_and_altered(client: Admin, name: str) -> None:
    client.create_topic(name, config={"retention.ms": "1234567", "cleanup.policy": "compact"})
    before = client.config(name)
    assert (before["retention.ms"], before["cleanup.policy"], before["segment.bytes"]) == ("1234567", "compact", "1073741824")

    client.alter_config(name, {"retention.ms": "7654321", "cleanup.policy": "compact,delete"})

    after = client.config(name)
    assert (after["retention.ms"], after["cleanup.policy"], after["segment.bytes"]) == ("7654321", "compact,delete", "1073741824")


def test_an_altered_limit_holds_at_once(client: Admin, name: str) -> None:
    client.create_topic(name)
    client.produce(name, [Record(b"x" * 5000)])

    client.alter_config(name, {"max.message.bytes": "1000"})
    with pytest.raises(Exception, match=r"(?i)MSG_SIZE_TOO_LARGE|MessageSizeTooLarge|larger than|Message size too large"):
        client.produce(name, [Record(b"x" * 5000)])

    client.alter_config(name, {"max.message.bytes": "10000"})
    client.produce(name, [Record(b"y" * 5000)])
    assert [record.value for record in client.consume(name)] == [b"x" * 5000, b"y" * 5000]


def test_deleted_records_are_gone_for_all_readers(client: Admin, name: str) -> None:
    client.create_topic(name)
    client.produce(name, [Record(b"%d" % number) for number in range(10)])

    assert client.delete_records(name, 4) == 4

    assert [record.offset for record in client.consume(name)][-6:] == [4, 5, 6, 7, 8, 9]
    with pytest.raises(Exception, match=r"(?i)offset.*out.*of.*range|OffsetOutOfRange"):
        client.delete_records(name, 11)


def test_a_topic_made_again_is_empty_and_another(broker: BrokerProcess, client: Admin, name: str) -> None:
    client.create_topic(name, 2, {"segment.bytes": "1000000"})
    client.produce(name, [Record(b"old") for _ in range(100)])
    metadata = broker.data / f"{name}-0" / "partition.metadata"
    eventually(metadata.exists, what="the topic's id on the disk")
    first_id = metadata.read_text()

    client.delete_topic(name)
    create_once_it_is_gone(client, name)
    client.produce(name, [Record(b"new")])

    assert [(record.offset, record.value) for record in client.consume(name)] == [(0, b"new")]
    assert client.topics()[name] == 1
    assert client.config(name)["segment.bytes"] == "1073741824"
    eventually(lambda: metadata.exists() and metadata.read_text() != first_id, what="another id")


def test_a_running_producer_and_consumer_survive_that_their_topic_is_made_again(broker: BrokerProcess, name: str) -> None:
    admin = ConfluentClient(broker.bootstrap)
    admin.create_topic(name)
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap, "topic.metadata.refresh.interval.ms": 500})
    producer.produce(name, b"old")
    assert producer.flush(15) == 0

    admin.delete_topic(name)
    create_once_it_is_gone(admin, name)
    producer.produce(name, b"new")

    assert producer.flush(15) == 0
    assert [record.value for record in admin.consume(name)] == [b"new"]


def test_topics_come_by_being_used_unless_that_is_forbidden(broker: BrokerProcess, tmp_path: Path, name: str) -> None:
    KcatClient(broker.bootstrap).produce(name, [Record(b"first")])
    assert ConfluentClient(broker.bootstrap).topics()[name] == 1

    with a_broker(tmp_path, auto_create_topics_enable="false", num_partitions=3) as strict:
        refused = []
        producer = confluent.Producer({"bootstrap.servers": strict.bootstrap, "topic.metadata.propagation.max.ms": 100})
        producer.produce(name, b"first", on_delivery=lambda error, _: refused.append(error.code()))
        assert producer.flush(15) == 0
        assert refused == [confluent.KafkaError.UNKNOWN_TOPIC_OR_PART]
        assert ConfluentClient(strict.bootstrap).topics() == {}
        assert strict.stop() == 0

    with a_broker(tmp_path, num_partitions=3) as lenient:
        KcatClient(lenient.bootstrap).produce(name, [Record(b"first")])
        assert ConfluentClient(lenient.bootstrap).topics() == {name: 3}


def test_kcat_lists_brokers_topics_and_offsets(broker: BrokerProcess, name: str) -> None:
    client = ConfluentClient(broker.bootstrap)
    client.create_topic(name, 2)
    client.produce(name, [Record(b"%d" % number, timestamp=1_700_000_000_000 + number) for number in range(5)])
    kcat = KcatClient(broker.bootstrap)

    listed = kcat.run("-L", "-t", name)
    assert "1 brokers:" in listed
    assert f"at {broker.bootstrap} (controller)" in listed
    assert f'topic "{name}" with 2 partitions' in listed
    assert kcat.run("-Q", "-t", f"{name}:0:1700000000003") == f"{name} [0] offset 3\n"
    assert kcat.run("-Q", "-t", f"{name}:0:-1") == f"{name} [0] offset 5\n"
    assert kcat.run("-Q", "-t", f"{name}:0:-2") == f"{name} [0] offset 0\n"


def test_the_cluster_and_its_broker_are_described(broker: BrokerProcess) -> None:
    admin = confluent_admin.AdminClient({"bootstrap.servers": broker.bootstrap})

    cluster = admin.describe_cluster().result(15)
    (node,) = cluster.nodes
    assert (node.host, node.port) == ("127.0.0.1", broker.port)
    assert cluster.controller.id == node.id
    assert f"cluster.id={cluster.cluster_id}" in (broker.data / "meta.properties").read_text()

    resource = confluent_admin.ConfigResource(confluent_admin.ResourceType.BROKER, str(node.id))
    config = admin.describe_configs([resource])[resource].result(15)
    assert config["log.dirs"].value == str(broker.data)


def test_two_hundred_partitions_keep_topics_configurations_and_offsets_over_restarts(tmp_path: Path) -> None:
    with a_broker(tmp_path) as broker:
        client = ConfluentClient(broker.bootstrap)
        client.create_topic("wide", 200, {"retention.ms": "-1"})
        client.create_topic("small", 1, {"retention.bytes": "123456789"})
        producer = confluent.Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(2000):
            producer.produce("wide", b"%d" % number, partition=number % 200)
        assert producer.flush(30) == 0
        for end in (broker.stop, broker.kill):
            end()
            broker.start()
            client = ConfluentClient(broker.bootstrap)
            assert client.topics() == {"wide": 200, "small": 1}
            assert client.config("wide")["retention.ms"] == "-1"
            assert client.config("small")["retention.bytes"] == "123456789"
            assert client.offsets("wide", 200) == [(0, 10)] * 200
