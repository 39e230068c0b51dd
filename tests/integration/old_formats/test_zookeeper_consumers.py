"""The high-level consumers of 0.8.2 and 0.10.2, which share partitions and keep offsets in ZooKeeper, on a broker with a real ZooKeeper.

They read what the Scala producer of their release wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import confluent_kafka as confluent
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.integration.old_formats.scenes import Scene
from tests.support.admin_requests import OK, a_topic, create, grow
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.old_java import consumer_offsets, each_old_release
from tests.support.old_java.zookeeper_clients import Received, ZooKeeperClients
from tests.support.wire_client import WireClient, a_wire_client
from tests.support.zookeeper import a_chroot

pytestmark = pytest.mark.slow

CODECS = ["none", "gzip", "snappy", "lz4"]
ACKS = ["0", "1", "-1"]
COUNT = 10
CONFIG = {"offsets_topic_replication_factor": 1, "offsets_topic_num_partitions": 1, "num_partitions": 1}


@pytest.fixture(scope="module")
def connect() -> str:
    return a_chroot()


@pytest.fixture(scope="module")
def broker(connect: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), broker_id=0, zookeeper_connect=connect, **CONFIG) as started:
        yield started


@pytest.fixture(scope="module", params=each_old_release)
def clients(
    request: pytest.FixtureRequest, connect: str, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperClients]:
    with ZooKeeperClients(request.param, connect, broker.bootstrap, tmp_path_factory.mktemp("clients")) as started:
        yield started


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        yield connected


@pytest.fixture(scope="module")
def znodes(connect: str, broker: BrokerProcess) -> Iterator[KazooClient]:
    """ZooKeeper below the path of the cluster."""
    session = KazooClient(connect)
    session.start()
    yield session
    session.stop()
    session.close()


def with_topic(broker: BrokerProcess, client: WireClient, topic: str, partitions: int = 1) -> str:
    """Create a topic that has leaders when this returns."""
    create(client, a_topic(topic, partitions))
    Scene(broker.port).learn_ids([topic])
    return topic


def send_all(clients: ZooKeeperClients, topic: str) -> list[str]:
    """Write with every codec and acks; the values."""
    return [value for codec in CODECS for acks in ACKS for value in clients.send(topic, acks=acks, codec=codec, count=COUNT)]


def received(clients: ZooKeeperClients, wanted: int, *names: str) -> list[Received]:
    """The records of some consumers, when there are enough."""
    found: list[Received] = []

    def has_all() -> bool:
        found[:] = [record for name in names for record in clients.received(name)]
        return len(found) >= wanted

    eventually(has_all, 60, f"{wanted} records are received by {names}")
    return found


def check(records: list[Received], sent: list[str], first: int = 0) -> None:
    """Each value is there once, and every partition has all its offsets in their order, from `first` on."""
    assert sorted(record.value for record in records) == sorted(sent)
    for partition in {record.partition for record in records}:
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == list(range(first, first + len(offsets)))


def children(znodes: KazooClient, path: str) -> dict[str, str]:
    """The data of the nodes below a path. Without those that vanish meanwhile: members give up their partitions to share them anew."""
    found: dict[str, str] = {}
    with suppress(NoNodeError):
        for name in znodes.get_children(path):
            found[name] = znodes.get(f"{path}/{name}")[0].decode()
    return found


def fetched(client: WireClient, group: str, topic: str, partitions: int) -> dict[int, int]:
    """The offsets that the broker answers from ZooKeeper."""
    asked = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(partitions)))])
    (answer,) = client.ask(asked, 0).topics
    assert {each.error_code for each in answer.partitions} == {0}
    return {each.partition_index: each.committed_offset for each in answer.partitions}


def test_members_share_the_partitions_and_keep_their_offsets_in_zookeeper(
    broker: BrokerProcess, clients: ZooKeeperClients, client: WireClient, znodes: KazooClient, connect: str
) -> None:
    group = f"shared-{clients.release}"
    topic = with_topic(broker, client, group, 4)
    for name in ("a", "b"):
        clients.open(name, group, topic)
    owners = {"0": f"{group}_a-0", "1": f"{group}_a-0", "2": f"{group}_b-0", "3": f"{group}_b-0"}
    eventually(lambda: children(znodes, f"/consumers/{group}/owners/{topic}") == owners, what=f"the owners are {owners}")

    sent = send_all(clients, topic)
    records = received(clients, len(sent), "a", "b")
    check(records, sent)
    assert {record.partition for record in clients.received("a")} == {0, 1}
    assert {record.partition for record in clients.received("b")} == {2, 3}

    clients.close("a")
    owners = {str(partition): f"{group}_b-0" for partition in range(4)}
    eventually(lambda: children(znodes, f"/consumers/{group}/owners/{topic}") == owners, what=f"the owners are {owners}")
    clients.close("b")  # during a rebalance it would wait for all its retries
    ends = Counter(record.partition for record in records)
    assert children(znodes, f"/consumers/{group}/offsets/{topic}") == {str(partition): str(end) for partition, end in ends.items()}
    assert fetched(client, group, topic, 4) == ends
    lags = {int(partition): (int(offset), int(size), int(lag)) for _, _, partition, offset, size, lag, _ in shown(clients, connect, group)}
    assert lags == {partition: (end, end, 0) for partition, end in ends.items()}

    (last,) = clients.send(topic, acks="0", codec="none", count=1)
    clients.open("c", group, topic)
    assert [record.value for record in received(clients, 1, "c")] == [last]
    clients.close("c")


def shown(clients: ZooKeeperClients, connect: str, group: str) -> list[list[str]]:
    """What the tool of the release says of the group's topic, which has the group's name."""
    return consumer_offsets(clients.release, connect, group, group)


def test_offsets_in_kafka_are_those_of_a_group_of_today(
    broker: BrokerProcess, clients: ZooKeeperClients, client: WireClient, znodes: KazooClient
) -> None:
    group = f"in-kafka-{clients.release}"
    topic = with_topic(broker, client, group)
    sent = send_all(clients, topic)
    clients.open("k", group, topic, storage="kafka")
    check(received(clients, len(sent), "k"), sent)
    clients.close("k")
    assert not znodes.exists(f"/consumers/{group}/offsets/{topic}/0")
    consumer = confluent.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    (committed,) = consumer.committed([confluent.TopicPartition(topic, 0)], timeout=30)
    assert committed.offset == len(sent)

    consumer.commit(offsets=[confluent.TopicPartition(topic, 0, len(sent) - 2)], asynchronous=False)
    consumer.close()
    clients.open("again", group, topic, storage="kafka")
    assert [record.value for record in received(clients, 2, "again")] == sent[-2:]
    clients.close("again")


def test_a_consumer_begins_where_an_offset_commit_of_version_0_says(
    broker: BrokerProcess, clients: ZooKeeperClients, client: WireClient
) -> None:
    group = f"begins-{clients.release}"
    topic = with_topic(broker, client, group)
    sent = clients.send(topic, acks="1", codec="gzip", count=10)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    asked = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    assert client.ask(asked, 0).topics[0].partitions[0].error_code == 0
    clients.open("begins", group, topic)
    check(received(clients, 3, "begins"), sent[7:], first=7)
    clients.close("begins")
    assert fetched(client, group, topic, 1) == {0: 10}


def test_new_topics_and_partitions_reach_a_consumer_that_asked_for_a_pattern(
    broker: BrokerProcess, clients: ZooKeeperClients, client: WireClient
) -> None:
    group = f"pattern-{clients.release}"
    clients.open("p", group, f"{group}-.*", is_pattern=True)
    topic = with_topic(broker, client, f"{group}-new")
    sent = clients.send(topic, acks="1", codec="snappy", count=COUNT)
    check(received(clients, len(sent), "p"), sent)
    assert grow(client, topic, 3) == OK
    Scene(broker.port).learn_ids([topic])
    more = clients.send(topic, acks="-1", codec="none", count=30)
    records = received(clients, len(sent + more), "p")
    check(records, sent + more)
    assert {record.partition for record in records} == {0, 1, 2}
    clients.close("p")


@pytest.mark.soak
def test_a_consumer_goes_on_when_the_broker_was_restarted(broker: BrokerProcess, clients: ZooKeeperClients, client: WireClient) -> None:
    group = f"restart-{clients.release}"
    topic = with_topic(broker, client, group)
    clients.open("r", group, topic)
    sent = clients.send(topic, acks="0", codec="lz4", count=COUNT)
    received(clients, len(sent), "r")
    assert broker.stop() == 0
    broker.start()
    Scene(broker.port).learn_ids([topic])
    sent += clients.send(topic, acks="0", codec="gzip", count=COUNT)
    check(received(clients, len(sent), "r"), sent)
    clients.close("r")
