"""`ottla brokers drain` and `decommission` on four brokers, while clients produce."""

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.command_line import CommandLine


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with a_cluster(tmp_path_factory.mktemp("drain"), 4, auto_leader_rebalance_enable="false") as running:
        yield running


@pytest.fixture
def ottla(cluster: Cluster) -> CommandLine:
    return CommandLine(cluster.bootstrap)


def held(ottla: CommandLine, broker: int) -> int:
    """The replicas on a broker."""
    (found,) = [each for each in ottla("brokers", "list", "--json").json["brokers"] if each["id"] == broker]
    return found["replicas"]


class SteadyProducer:
    """Writes with acks=all until it is stopped; counts what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged = 0
        self.failed: list[str] = []
        self._stopping = threading.Event()
        # One request at a time: tests.support.cluster_clients.Writer says why more may repeat batches of other partitions.
        settings = {"enable.idempotence": True, "linger.ms": 5, "max.in.flight.requests.per.connection": 1}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self._thread = threading.Thread(target=self._run, args=(topic,))
        self._thread.start()

    def _run(self, topic: str) -> None:
        while not self._stopping.is_set():
            self._producer.produce(topic, bytes(200), on_delivery=self._on_delivery)
            self._producer.poll(0.002)
        self._producer.flush(30)

    def _on_delivery(self, error: object, _: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(str(error))

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def test_a_drained_broker_holds_nothing_and_no_record_is_lost(cluster: Cluster, ottla: CommandLine) -> None:
    cluster.create_topic("orders", replicas=[[number % 4, (number + 1) % 4, (number + 2) % 4] for number in range(12)])
    producer = SteadyProducer(cluster.bootstrap, "orders")
    try:
        eventually(lambda: producer.acknowledged > 50)
        planned = ottla("brokers", "drain", "3", "--dry-run", "--json").json
        assert {each["topic"] for each in planned["partitions"]} >= {"orders"}
        assert all(3 not in each["replicas"] for each in planned["partitions"])

        done = ottla("brokers", "drain", "3", "--at-once", "4", "--throttle", "50000000", "--json").json
    finally:
        producer.stop()

    assert done["moved_partitions"] >= 9
    assert held(ottla, 3) == 0
    assert producer.failed == []
    assert sum(int(row[3]) for row in ottla("topics", "offsets", "orders").rows) == producer.acknowledged
    throttled = [row[0] for row in ottla("configs", "describe", "topic", "orders").rows if "throttled" in row[0]]
    assert throttled == []
    assert ottla("brokers", "drain", "3").lines == ["broker 3 holds no replicas", "0 partitions were moved"]


def test_a_decommissioned_broker_leaves_no_configuration(cluster: Cluster, ottla: CommandLine) -> None:
    cluster.create_topic("left", replicas=[[2, 0]])
    ottla("configs", "alter", "broker", "2", "--set", "log.cleaner.threads=2")

    done = ottla("brokers", "decommission", "2", "--json").json

    assert done["deleted_configurations"] == {"2": ["log.cleaner.threads"]}
    assert held(ottla, 2) == 0


def test_what_cannot_be_is_refused_before_anything_moves(cluster: Cluster, ottla: CommandLine) -> None:
    cluster.create_topic("wide", replicas=[[0, 1, 2, 3]])
    before = held(ottla, 1)

    refused = ottla("brokers", "drain", "1", status=1)

    assert refused.err == "ottla: wide-0 has 4 replicas, and only 3 other brokers are alive\n"
    assert held(ottla, 1) == before
    assert "there is no broker 9; alive are 0, 1, 2, 3" in ottla("brokers", "drain", "9", status=1).err
    ottla("topics", "delete", "wide")


def test_a_decommission_that_would_leave_less_than_min_insync_replicas_changes_nothing(cluster: Cluster, ottla: CommandLine) -> None:
    cluster.create_topic("strict", replicas=[[0, 1, 2, 3]])
    ottla("configs", "alter", "topic", "strict", "--set", "min.insync.replicas=4")
    ottla("configs", "alter", "broker", "3", "--set", "log.cleaner.threads=2")
    before = ottla("topics", "describe", "--json").json

    refused = ottla("brokers", "decommission", "3", "--throttle", "50000000", status=1)

    assert refused.err == "ottla: strict-0 has 4 replicas, and only 3 other brokers are alive\n"
    assert ottla("topics", "describe", "--json").json == before
    assert ["log.cleaner.threads", "2"] in [row[:2] for row in ottla("configs", "describe", "broker", "3").rows]
    ottla("produce", "strict", input="acknowledged by all\n")
    ottla("topics", "delete", "strict")
    ottla("configs", "alter", "broker", "3", "--delete", "log.cleaner.threads")


def test_a_drain_that_is_killed_is_continued(cluster: Cluster, ottla: CommandLine) -> None:
    cluster.create_topic("many", replicas=[[1, 0]] * 20)
    before = held(ottla, 0)
    with ottla.start("brokers", "drain", "0", "--at-once", "1", "--ignore-racks") as command:
        eventually(lambda: held(ottla, 0) < before)
        command.kill()

    assert 0 < held(ottla, 0) < before
    ottla("brokers", "drain", "0", "--ignore-racks")

    assert held(ottla, 0) == 0


@pytest.mark.soak
def test_a_broker_that_dies_while_it_is_drained_holds_nothing_either(cluster: Cluster, ottla: CommandLine) -> None:
    cluster.create_topic("dying", replicas=[[2, 3]] * 20)
    ottla("produce", "-p", "0", "dying", input="kept\n")
    before = held(ottla, 2)
    with ottla.start("brokers", "drain", "2", "--at-once", "1", "--ignore-racks") as command:
        eventually(lambda: held(ottla, 2) < before)
        cluster.broker(2).kill()
        _, said = command.communicate(timeout=120)

    assert (command.returncode, b"Traceback" in said) == (0, False), said
    described = ottla("topics", "describe", "dying", "--json").json
    assert [part["replicas"] for part in described[0]["partitions"] if 2 in part["replicas"]] == []
    assert ottla("consume", "-e", "dying").lines == ["kept"]
    cluster.broker(2).start()


def test_the_configuration_of_a_dead_broker_stays_and_the_command_says_so(cluster: Cluster, ottla: CommandLine) -> None:
    cluster.create_topic("bereft", replicas=[[1, 0]])
    ottla("configs", "alter", "broker", "1", "--set", "log.cleaner.threads=2")
    cluster.broker(1).kill()
    eventually(lambda: 1 not in [each["id"] for each in ottla("brokers", "list", "--json").json["brokers"]])

    done = ottla("brokers", "decommission", "1", "--ignore-racks", "--json")

    assert done.json["deleted_configurations"] == {}
    assert done.err.endswith("dynamic configurations of dead brokers stay, because only a live broker deletes its own: 1\n")
    cluster.broker(1).start()
    assert ["log.cleaner.threads", "2"] in [row[:2] for row in ottla("configs", "describe", "broker", "1").rows]
    ottla("configs", "alter", "broker", "1", "--delete", "log.cleaner.threads")
