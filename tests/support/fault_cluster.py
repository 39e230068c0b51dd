"""Applies the faults of the matrix to three brokers, the links between them, and their own ZooKeeper.

One `FaultCluster` serves many cells, one after the other; each begins and ends with three healthy brokers. A failed cell leaves the cluster
in an unknown state: discard the cluster. The brokers are Ottla's, whose cells must hold, or Apache Kafka's with the same settings, whose
cells are counted: a loss there is a finding, not a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData, TopicProduceResponse
from tests.support.batches import a_batch
from tests.support.broker_process import eventually
from tests.support.cluster import SESSION_TIMEOUT_MS, Cluster, a_cluster
from tests.support.cluster_links import ZOOKEEPER, Links, some_links
from tests.support.fault_answers import answers_about
from tests.support.fault_apache import apache_brokers
from tests.support.fault_cells import ZOOKEEPER_TARGET, Cell
from tests.support.fault_clients import RECOVERY_SECONDS, ConfluentWriter, FaultWriter, a_writer_of
from tests.support.fault_judge import FaultHistory, judge
from tests.support.fault_readers import Along, a_reader_along, read_to_the_end
from tests.support.wire_client import a_wire_client
from tests.support.zookeeper import ZooKeeperServer, a_zookeeper

OTTLA, APACHE = "ottla", "apache"
BROKERS = 3
AWAY_SECONDS = 2 * SESSION_TIMEOUT_MS / 1000
"""How long whatever is to be missed is gone."""


class Result(NamedTuple):
    """The result of a cell.

    The stalls are the longest times without an acknowledgement, and without a record read; `found` counts the broken rules that do not fail
    the cell.
    """

    cell: Cell
    produce_stall_s: float
    consume_stall_s: float
    whole_s: float
    acknowledged: int
    found: dict[str, int]

    @property
    def line(self) -> str:
        """For the report."""
        found = "".join(f", {count} {rule}" for rule, count in self.found.items())
        return (
            f"{self.cell.name:<52} produce stall {self.produce_stall_s:5.2f} s  consume stall {self.consume_stall_s:5.2f} s  "
            f"all in sync {self.whole_s:5.2f} s after its end  {self.acknowledged:>6} acknowledged{found}"
        )


class FaultCluster:
    """See the module."""

    def __init__(
        self, cluster: Cluster, links: Links, zookeeper: ZooKeeperServer | None, directory: Path, cut_seconds: float, *, is_strict: bool
    ) -> None:
        self.cluster = cluster
        self._cut_seconds = cut_seconds
        self._is_strict = is_strict
        self._two_acknowledged = 0
        self.links = links
        self.zookeeper = zookeeper
        self.directory = directory
        self._topics = 0

    def run(self, cell: Cell, moment_s: float = 0.0) -> Result:
        """Do the fault under load, `moment_s` after that has come to run, and have everything judged. Raises AssertionError."""
        cluster = self.cluster
        cluster.wait_until_registered(*range(BROKERS))
        controller = cluster.controller_id()
        one, other = (broker.id for broker in cluster.others(controller))
        victim = controller if cell.target == "controller" else one
        replicas = {
            "leader": [[one, other, controller]],
            "follower": [[other, one, controller]],
        }.get(cell.target, [[controller, one, other], [one, controller, other]])
        self._topics += 1
        topic = f"{cell.fault}-{cell.target}-{self._topics}"
        # Java's producer chooses the partitions itself.
        cluster.create_topic(topic, replicas=replicas, min_insync_replicas=2 if cell.acks == "all" else 1)
        history = FaultHistory()
        bootstrap = cluster.bootstrap
        with self._telling_what_brokers_say(topic), a_reader_along(bootstrap, history, topic, len(replicas)) as along:
            with a_writer_of(cell, bootstrap, history, topic, len(replicas), self.directory) as writer:
                along.go_on_for(20)
                moment = time.monotonic() + moment_s
                while time.monotonic() < moment:
                    along.go_on_for(1)
                writer.stalls.begin()
                along.stalls.begin()
                if cell.target == ZOOKEEPER_TARGET:
                    self._harm_zookeeper(cell.fault, writer, along)
                else:
                    self._harm_broker(cell, victim, topic, writer)
                ended = time.monotonic()
                self._wait_until_whole(topic, len(replicas))
                whole = time.monotonic() - ended
                writer.go_on_for()
                along.go_on_for()
            along.come_to(read_to_the_end(bootstrap, history, topic, len(replicas)))
        found = self._judge(cell, history)
        return Result(cell, writer.stalls.longest, along.stalls.longest, whole, history.acknowledged_count, found)

    @contextmanager
    def _telling_what_brokers_say(self, topic: str) -> Iterator[None]:
        """A failure in the block carries as a note what each broker says of the topic then."""
        try:
            yield
        except BaseException as failure:
            failure.add_note(answers_about(self.cluster, topic))
            raise

    def _judge(self, cell: Cell, history: FaultHistory) -> dict[str, int]:
        bad, found = judge(cell, history.violations())
        if self._is_strict:
            assert not bad, f"{cell.name}: {len(bad)} violations: {bad[:10]}"
        for each in bad:
            rule = each.partition(":")[0]
            found[rule] = found.get(rule, 0) + 1
        return found

    def _wait_until_whole(self, topic: str, partitions: int) -> None:
        self.cluster.wait_until_registered(*range(BROKERS))
        for partition in range(partitions):
            self.cluster.wait_until_isr_is(topic, partition, *range(BROKERS), seconds=RECOVERY_SECONDS)

    # ---- to one broker

    def _harm_broker(self, cell: Cell, victim: int, topic: str, writer: FaultWriter) -> None:
        broker = self.cluster.broker(victim)
        match cell.fault:
            case "stop":
                assert broker.stop() == 0
                self._wait_until_led_by_others(topic, victim)
                writer.go_on_for()
                broker.start()
            case "kill":
                broker.kill()
                self._wait_until_led_by_others(topic, victim)
                writer.go_on_for()
                broker.start()
            case "bounce":
                assert broker.stop() == 0
                broker.start()
            case "crash-bounce":
                broker.kill()
                broker.start()
            case "pause":
                broker.pause()
                time.sleep(AWAY_SECONDS)  # this is the fault
                self._wait_until_led_by_others(topic, victim)
                writer.go_on_for()
                broker.resume()
            case "cut":
                self._cut_off(cell, victim, topic, writer)
            case "reset":
                for other in self._others(victim):
                    self.links.cut(victim, other)
                self.links.heal()
            case "expire":
                self._expire(victim)
            case _:
                raise AssertionError(cell)

    def _others(self, victim: int) -> list[int]:
        return [broker.id for broker in self.cluster.others(victim)] + [ZOOKEEPER]

    def _cut_off(self, cell: Cell, victim: int, topic: str, writer: FaultWriter) -> None:
        """Clients reach the broker, which takes itself for the leader. Producers with acks=all find the new leader all the same."""
        self.links.isolate(victim, *self._others(victim))
        until = time.monotonic() + max(AWAY_SECONDS, self._cut_seconds)
        time.sleep(AWAY_SECONDS)
        if self.zookeeper is not None:  # the embedded store is a file: no broker can be cut off from it
            self._wait_until_led_by_others(topic, victim)
            self._another_is_acknowledged(cell, victim, topic, writer.history)
            if cell.acks == "all" and cell.target != "follower":
                self._refuses_to_acknowledge(victim, topic)
                if self._is_strict:
                    writer.go_on_for()  # it is sent to look for the other leader
        time.sleep(max(0.0, until - time.monotonic()))
        self.links.heal()

    def _another_is_acknowledged(self, cell: Cell, victim: int, topic: str, history: FaultHistory) -> None:
        """A producer that knows only the other brokers writes to the leader that they know."""
        bootstrap = ",".join(broker.bootstrap for broker in self.cluster.others(victim))
        other = ConfluentWriter(bootstrap, history, topic, 1, cell.acks, name="other")
        other.start()
        try:
            eventually(lambda: other.count >= 20, RECOVERY_SECONDS, f"the leader of {topic}-0 acknowledges while {victim} is cut off")
        except BaseException:
            other.give_up()
            raise
        assert other.finish() == 0
        assert not other.failures, other.failures[0]

    def _refuses_to_acknowledge(self, victim: int, topic: str) -> None:
        """Another leads partition 0 now; this one must not acknowledge a record, which is not to be found anywhere afterwards either."""
        records = memoryview(a_batch())
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(acks=-1, timeout_ms=500, topic_data=[data])
        found: list[TopicProduceResponse] = []

        def is_answered() -> bool:
            try:
                with a_wire_client(self.cluster.broker(victim).port) as client:
                    found[:] = client.ask(request, 9).responses
            except ConnectionError:
                return False  # who is cut off sends its clients away now and then
            return True

        eventually(is_answered, RECOVERY_SECONDS, f"broker {victim} answers")
        (told,) = found
        assert told.partition_responses[0].error_code in {
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        }, told

    def _expire(self, victim: int) -> None:
        zookeeper = self.zookeeper
        assert zookeeper is not None
        path = f"/brokers/ids/{victim}"
        before = zookeeper.owner_of(path)
        zookeeper.expire(before)
        eventually(lambda: zookeeper.owner_of(path) not in {0, before}, RECOVERY_SECONDS, f"{path} is made again")

    def _wait_until_led_by_others(self, topic: str, victim: int) -> None:
        for partition in range(len(self.cluster.metadata(topic, broker_id=self._witness(victim)).topics[0].partitions)):
            eventually(
                lambda partition=partition: (
                    self.cluster.partition(topic, partition, broker_id=self._witness(victim)).leader_id not in {-1, victim}
                ),
                RECOVERY_SECONDS,
                f"{topic}-{partition} is not led by {victim}",
            )

    def _witness(self, victim: int) -> int:
        return self.cluster.others(victim)[0].id

    # ---- to ZooKeeper

    def _harm_zookeeper(self, fault: str, writer: FaultWriter, along: Along) -> None:
        """Make ZooKeeper unavailable. Producers and consumers continue without a stall; only changes of metadata wait."""
        zookeeper = self.zookeeper
        assert zookeeper is not None
        away: Callable[[], object]
        back: Callable[[], object]
        away, back = {
            "stop": (zookeeper.stop, zookeeper.start),
            "kill": (zookeeper.kill, zookeeper.start),
            "bounce": (zookeeper.stop, zookeeper.start),
            "pause": (zookeeper.pause, zookeeper.resume),
            "cut": (self._hold_zookeeper, self.links.heal),
        }[fault]
        away()
        if fault != "bounce":
            end = time.monotonic() + AWAY_SECONDS
            while time.monotonic() < end:
                writer.go_on_for()
                along.go_on_for()
        back()

    def _hold_zookeeper(self) -> None:
        for broker_id in range(BROKERS):
            self.links.hold(broker_id, ZOOKEEPER)


@contextmanager
def a_fault_cluster(directory: Path, store: str, kind: str = OTTLA, cut_seconds: float = 0.0) -> Iterator[FaultCluster]:
    """Running, on a ZooKeeper of its own or on the embedded store. A broker that is cut off is so for `cut_seconds` at least."""
    config = {"auto.leader.rebalance.enable": "false"}
    with ExitStack() as held:
        zookeeper = held.enter_context(a_zookeeper(directory / "ensemble")) if store == "zookeeper" else None
        links = held.enter_context(some_links())
        if kind == APACHE:
            assert zookeeper is not None, "Apache Kafka has no embedded store"
            cluster = held.enter_context(apache_brokers(directory / "brokers", BROKERS, zookeeper, links, config))
        else:
            cluster = held.enter_context(a_cluster(directory / "brokers", BROKERS, zookeeper=zookeeper, links=links, **config))
        yield FaultCluster(cluster, links, zookeeper, directory, cut_seconds, is_strict=kind == OTTLA)
