"""Time at will: a test advances the broker's time, rolls and compacts logs, and ends sessions, without waiting."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from ottla.protocol.errors import ErrorCode
from pytest_ottla import Broker, Cluster, OttlaError
from tests.support.broker_process import eventually
from tests.support.share_clients import begin_group
from tests.support.share_members import ShareMember, create_topic, produce
from tests.support.wire_client import a_wire_client


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("time"), num_partitions=1) as started:
        yield started


def ends(broker: Broker, topic: str) -> tuple[int, int]:
    """The first and the end offset of partition 0."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "looks"})
    with closing(consumer):
        return consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=10, cached=False)


def joined(broker: Broker, group: str, topic: str) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 45_000}
    )
    consumer.subscribe([topic])
    message = consumer.poll(20)
    assert message is not None
    assert message.error() is None
    return consumer


def members(broker: Broker, group: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return [member.member_id for member in admin.describe_consumer_groups([group])[group].result().members]


def test_records_older_than_the_retention_are_gone(broker: Broker) -> None:
    broker.create_topic("kept-a-week", config={"retention.ms": str(7 * 86_400_000)})
    broker.produce("kept-a-week", [b"old"])

    broker.advance(days=6)
    assert ends(broker, "kept-a-week") == (0, 1)
    broker.advance(days=2)

    eventually(lambda: ends(broker, "kept-a-week") == (1, 1))


def test_a_member_that_is_paused_loses_its_session_and_comes_back(broker: Broker) -> None:
    broker.produce("visited", [b"one"])
    with closing(joined(broker, "visitors", "visited")) as consumer:
        (before,) = members(broker, "visitors")

        broker.advance(minutes=1)
        eventually(lambda: members(broker, "visitors") == [])

        broker.produce("visited", [b"two"])
        eventually(lambda: (message := consumer.poll(0.2)) is not None and message.error() is None)
        assert members(broker, "visitors") != [before]


def test_one_member_of_a_group_is_expired(broker: Broker) -> None:
    broker.produce("expired", [b"one"])
    with closing(joined(broker, "expiring", "expired")):
        (member,) = members(broker, "expiring")

        broker.expire("expiring", member)

        eventually(lambda: members(broker, "expiring") == [])
    with pytest.raises(OttlaError, match="coordinates no group expiring with a member nobody"):
        broker.expire("expiring", "nobody")


def test_a_transaction_left_open_is_aborted_at_its_timeout(broker: Broker) -> None:
    broker.create_topic("paid")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payer", "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("paid", b"half")
    producer.flush(20)

    broker.advance(minutes=2)

    eventually(lambda: ends(broker, "paid")[1] == 2)  # the record and the marker of its abort
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.commit_transaction(20)
    assert refused.value.args[0].code() in {confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH, confluent_kafka.KafkaError._FENCED}


def test_a_compacted_topic_has_the_last_value_of_each_key_at_once(broker: Broker) -> None:
    broker.create_topic("latest", config={"cleanup.policy": "compact"})
    broker.produce("latest", [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])

    broker.compact("latest")

    assert [(each.offset, each.key, each.value) for each in broker.consume("latest", 2)] == [(1, b"b", b"1"), (2, b"a", b"2")]
    with pytest.raises(OttlaError, match="has no partition of topic missing"):
        broker.compact("missing")
    broker.create_topic("plain")
    with pytest.raises(OttlaError, match="plain is not compacted"):
        broker.compact("plain")


def test_the_locks_of_a_share_group_end(broker: Broker) -> None:
    with a_wire_client(int(broker.bootstrap_servers.rpartition(":")[2])) as client:
        begin_group(client, "locking", "locked")
        produce(client, "locked", 3)
        member = ShareMember(client, create_topic(client, "locked"), group="locking")
        assert member.acquire(0) == [(0, 2, 1)]
        assert member.acknowledge((0, 0, 1)) == 0

        broker.end_locks("locking")

        assert member.acknowledge((1, 2, 1)) == ErrorCode.INVALID_RECORD_STATE
        assert member.acquire(0) == [(1, 2, 2)]
    with pytest.raises(OttlaError, match="has no locked records of a share group nobody"):
        broker.end_locks("nobody")


def test_a_rolled_topic_has_another_segment(broker: Broker, tmp_path: Path) -> None:
    with Broker(tmp_path, num_partitions=1) as own:
        own.produce("rolled", [b"one", b"two"])

        own.roll("rolled")
        own.roll("rolled")  # the new segment is empty: there is nothing to roll

        assert sorted(path.stem for path in tmp_path.glob("**/rolled-0/*.log")) == [f"{0:020}", f"{2:020}"]


def test_time_moves_neither_back_nor_beyond_its_limit(broker: Broker) -> None:
    for wrong in ({"seconds": -1.0}, {"days": 4000.0}):
        with pytest.raises(OttlaError, match="time advances by 0 to 315360000 seconds"):
            broker.advance(**wrong)
    with pytest.raises(OttlaError):
        broker.ask("advance", ms="soon")


def test_a_restart_of_the_clients_time_is_not_needed(broker: Broker) -> None:
    broker.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
    broker.advance(hours=5)
    broker.produce("stamped", [b"x"])
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "stamps"})
    with closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition("stamped", 0, 0)])
        message = consumer.poll(20)
    assert message is not None
    assert message.timestamp()[1] / 1000 - time.time() > 4.9 * 3600


@pytest.mark.cluster
def test_a_cluster_stays_together_while_its_time_advances(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3, num_partitions=1) as cluster:
        cluster.any.create_topic("kept", config={"retention.ms": "3600000"})
        cluster.any.produce("kept", [b"one"])

        cluster.advance(hours=2)

        eventually(lambda: ends(cluster.any, "kept") == (1, 1))
        assert all(broker.known_brokers() == [0, 1, 2] for broker in cluster.brokers)
        assert cluster.any.produce("kept", [b"two"]) == [1]
