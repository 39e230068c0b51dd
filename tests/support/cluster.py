"""Runs a cluster of brokers: processes (`forked_broker.py`), with real crashes and pauses, on the embedded store or on a ZooKeeper.

    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.broker(cluster.leader_of("t", 0)).kill()

Brokers keep ports and data over restarts. When a test fails the logs of all brokers are printed. At the end every running broker is
stopped, and must end without errors. No process outlives the test, even a killed one. `zookeeper` is any object with a `connect`: a
ZooKeeperServer, or the `zookeeper` of an ApacheKafka, whose brokers then join the same cluster. `links` puts proxies between the brokers,
and between them and ZooKeeper.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from ottla.client.cluster import Cluster as Client
from ottla.client.errors import ClientError
from ottla.client.topic_admin import NewTopic, create_topics
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition
from ottla.supervisor.layout import Layout
from tests.support.apache_kafka.guard import process_guard
from tests.support.apache_kafka.ports import free_ports
from tests.support.broker_process import eventually
from tests.support.cluster_links import Links
from tests.support.forked_broker import BROKER, ForkedBroker, start_broker
from tests.support.secrets import secrets_in

START_SECONDS = 90.0
STOP_SECONDS = 90.0
SESSION_TIMEOUT_MS = 2_000
"""The embedded store notices the death of a broker at once, ZooKeeper after this time. Both notice a suspended broker after this time."""
_ATTEMPTS = 3
_LOG_CHARACTERS = 6_000

QUICK = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "zookeeper.connection.timeout.ms": "90000",  # else it is that of the session, which is soon over on a busy machine
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # Otherwise leaders would go back to the preferred replicas five seconds after a failover; tests that want this set it.
    "auto.leader.rebalance.enable": "false",
}
"""Settings that make tests wait less than an operator would want, and exclude chance."""


class HasConnect(Protocol):
    """A ZooKeeper of whatever kind."""

    @property
    def connect(self) -> str:
        """For zookeeper.connect."""
        ...


class ClusterBroker:
    """One broker of a cluster. `properties` is read at every start, so a test may change it between two."""

    def __init__(self, broker_id: int, port: int, properties: dict[str, str], directory: Path) -> None:
        self.id = broker_id
        self.port = port
        self.properties = properties
        self.data = Path(properties["log.dirs"])
        self.log_file = directory / f"broker-{broker_id}.log"
        self.is_paused = False
        self._process: ForkedBroker | subprocess.Popen[str] | None = None
        self._log_start = 0

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process while it runs."""
        assert self._process is not None, f"broker {self.id} does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it lives, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def answers(self) -> bool:
        """Whether it is worth asking."""
        return self.is_running and not self.is_paused

    def log(self) -> str:
        """All that it ever logged."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def log_of_this_run(self) -> str:
        """The log of the broker since its last start."""
        return self.log_file.read_bytes()[self._log_start :].decode(errors="replace") if self.log_file.exists() else ""

    def program(self) -> Sequence[str]:
        """The module that is run as `ottla`, and what it takes before the command."""
        return BROKER

    def launch(self) -> None:
        """Start it without waiting for it."""
        assert not self.is_running, f"broker {self.id} runs already"
        settings = [part for name, value in self.properties.items() for part in ("--set", f"{name}={value}")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        with self.log_file.open("ab") as log:
            self._log_start = log.tell()
            self._process = start_broker(settings, log, environment, program=self.program())
        process_guard().watch(self._process.pid)

    def wait_until_ready(self) -> bool:
        """After `launch`; False when it ended instead."""
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(START_SECONDS), f"broker {self.id} is not ready after {START_SECONDS} s:\n{self.log_of_this_run()}"
        return self._process.stdout.readline().startswith("ottla is ready")

    def start(self) -> None:
        """Start it, and return when it serves."""
        self.launch()
        assert self.wait_until_ready(), f"broker {self.id} ended:\n{self.log_of_this_run()}"

    def stop(self) -> int:
        """SIGTERM, also of one that is paused; the exit status."""
        self.send(signal.SIGTERM)
        if self.is_paused:
            self.resume()
        return self.wait()

    def kill(self) -> None:
        """SIGKILL: a crash."""
        self.send(signal.SIGKILL)
        self.wait()

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, and it says nothing more."""
        self.send(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)
        self.is_paused = False

    def restart(self) -> None:
        """A clean stop, and a start."""
        assert self.stop() == 0, self.log_of_this_run()
        self.start()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None, f"broker {self.id} does not run"
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit status, once it has ended; its log may show no secret."""
        assert self._process is not None
        status = self._process.wait(STOP_SECONDS)
        process_guard().release(self._process.pid)
        self.is_paused = False
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        assert not secrets_in(self.log_of_this_run()), f"{self.log_file} shows a secret"
        return status


class Cluster:
    """See the module."""

    broker_type: type[ClusterBroker] = ClusterBroker

    def __init__(
        self, directory: Path, brokers: int, zookeeper: HasConnect | str | None, links: Links | None, config: dict[str, str]
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.links = links
        self._connect = zookeeper if zookeeper is None or isinstance(zookeeper, str) else zookeeper.connect
        self._config = config
        self._count = brokers
        self.brokers: dict[int, ClusterBroker] = {}

    # ---- processes

    def start(self) -> None:
        """Start all at once, and return when each knows all others. Chooses other ports when another process took one."""
        for attempt in range(_ATTEMPTS):
            self._make()
            for broker in self.brokers.values():
                broker.launch()
            ready = [broker.wait_until_ready() for broker in self.brokers.values()]
            if all(ready):
                break
            said = "\n".join(
                broker.log_of_this_run() for broker, is_ready in zip(self.brokers.values(), ready, strict=True) if not is_ready
            )
            assert "cannot be bound" in said, said
            assert attempt < _ATTEMPTS - 1, said
            self.end()
        self.wait_until_registered()

    def _make(self) -> None:
        ports = tuple(free_ports(2 * self._count))
        clients, internal = ports[: self._count], ports[self._count :]
        layout = Layout(self.directory, clients, self._count, self._connect)
        for broker_id in layout.broker_ids:
            properties = {**layout.properties(broker_id), **QUICK}
            if self.links is not None:
                properties |= self.links.settings(broker_id, clients[broker_id], internal[broker_id], self._connect)
            properties |= {name: value.replace("{id}", str(broker_id)) for name, value in self._config.items()}
            self.brokers[broker_id] = self.broker_type(broker_id, clients[broker_id], properties, self.directory)

    def broker(self, broker_id: int) -> ClusterBroker:
        """By its id."""
        return self.brokers[broker_id]

    def others(self, *broker_ids: int) -> list[ClusterBroker]:
        """All but these."""
        return [broker for broker in self.brokers.values() if broker.id not in broker_ids]

    @property
    def bootstrap(self) -> str:
        """Of all brokers, running or not."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def stop(self) -> dict[int, int]:
        """Stop all that run, at once; their exit statuses."""
        running = [broker for broker in self.brokers.values() if broker.is_running]
        for broker in running:
            broker.send(signal.SIGTERM)
            broker.resume()
        return {broker.id: broker.wait() for broker in running}

    def end(self) -> None:
        """Kill what runs."""
        for broker in self.brokers.values():
            if broker.is_running:
                broker.send(signal.SIGKILL)
        for broker in self.brokers.values():
            with suppress(AssertionError):
                broker.wait()

    # ---- what the brokers say

    def ask(self, what: Callable[[Client], object], broker_id: int | None = None, seconds: float = 5.0) -> object:
        """`what` with a client of this broker, or of the first that answers."""
        wanted = [self.brokers[broker_id]] if broker_id is not None else [each for each in self.brokers.values() if each.answers]
        assert wanted, "no broker runs that could be asked"
        for at, broker in enumerate(wanted, 1):
            try:
                with Client(broker.bootstrap, timeout_seconds=seconds) as client:
                    return what(client)
            except ClientError:
                if at == len(wanted):
                    raise
        raise AssertionError

    def metadata(self, *topics: str, broker_id: int | None = None) -> MetadataResponse:
        """A broker's metadata of these topics and of the cluster."""
        answer = self.ask(lambda client: client.refresh(topics), broker_id)
        assert isinstance(answer, MetadataResponse)
        return answer

    def partition(self, topic: str, partition: int, broker_id: int | None = None) -> MetadataResponsePartition:
        """A broker's metadata of a partition. Raises LookupError for an unknown one."""
        for found in self.metadata(topic, broker_id=broker_id).topics[0].partitions:
            if found.partition_index == partition:
                return found
        raise LookupError(f"{topic}-{partition}")

    def leader_of(self, topic: str, partition: int) -> int:
        """Waits until there is one."""
        return self._when(
            lambda: self.partition(topic, partition).leader_id, lambda leader: leader >= 0, f"{topic}-{partition} has a leader"
        )

    def isr_of(self, topic: str, partition: int) -> set[int]:
        """As it is now."""
        return set(self.partition(topic, partition).isr_nodes)

    def controller_id(self) -> int:
        """Waits until there is one that runs."""
        return self._when(
            lambda: self.metadata().controller_id,
            lambda found: found in self.brokers and self.brokers[found].answers,
            "there is a controller",
        )

    def _when(self, find: Callable[[], int], is_good: Callable[[int], bool], what: str) -> int:
        found = -1

        def look() -> bool:
            nonlocal found
            try:
                found = find()
            except (ClientError, LookupError):
                return False
            return is_good(found)

        eventually(look, what=what)
        return found

    # ---- waiting

    def wait_until_registered(self, *broker_ids: int) -> None:
        """Until every broker that answers knows exactly these (those that answer, when none are given) and a controller among them."""
        expected = set(broker_ids) or {broker.id for broker in self.brokers.values() if broker.answers}

        def known() -> bool:
            for broker in self.brokers.values():
                if broker.answers:
                    found = self.metadata(broker_id=broker.id)
                    ids = {each.node_id for each in found.brokers} & self.brokers.keys()
                    if ids != expected or found.controller_id < 0:
                        return False
            return True

        eventually(_without_client_errors(known), START_SECONDS, f"brokers {sorted(expected)} know each other")

    def wait_until_isr_is(self, topic: str, partition: int, *broker_ids: int, seconds: float = 90.0) -> None:
        """Until these are the in-sync replicas, in any order."""
        eventually(
            _without_client_errors(lambda: self.isr_of(topic, partition) == set(broker_ids)),
            seconds,
            f"the ISR of {topic}-{partition} is {sorted(broker_ids)}",
        )

    def wait_until_led_by_another(self, topic: str, partition: int, than: int, seconds: float = 90.0) -> int:
        """Until the partition has a leader that is not `than`; its id."""
        found = eventually(
            _without_client_errors(lambda: (leader := self.partition(topic, partition).leader_id) not in {-1, than} and [leader]),
            seconds,
            f"{topic}-{partition} is led by another broker than {than}",
        )
        assert isinstance(found, list)
        return int(found[0])

    # ---- topics

    def create_topic(self, name: str, *, partitions: int = 1, replicas: list[list[int]] | None = None, **config: object) -> None:
        """`replicas` by partition, the preferred leader first; else `partitions` with as many replicas as there may be, up to 3.

        Waits until every broker that answers knows leaders of all of them. Tries again while too few brokers are registered: a session
        that outlived its ZooKeeper may yet end, and its broker is gone from the cluster for the moment that it takes to come back.
        """
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        factor = min(3, len(self.brokers))
        new = NewTopic(name, -1 if replicas else partitions, -1 if replicas else factor, settings, replicas or [])

        def outcome() -> list[object]:
            found = self.ask(lambda client: create_topics(client, [new])[name], seconds=90.0)
            return [] if "INVALID_REPLICATION_FACTOR" in str(found) and factor == len(self.brokers) else [found]

        assert eventually(outcome, what=f"{factor} brokers are registered") == [None]
        count = len(replicas) if replicas else partitions

        def is_known() -> bool:
            for broker in self.brokers.values():
                if broker.answers:
                    (topic,) = self.metadata(name, broker_id=broker.id).topics
                    if sum(each.leader_id >= 0 for each in topic.partitions) != count:
                        return False
            return True

        eventually(_without_client_errors(is_known), what=f"topic {name} is known to all")

    def log_files(self, topic: str, partition: int) -> dict[int, bytes]:
        """By broker, the partition's log: its segments one after the other."""
        found = {}
        for broker in self.brokers.values():
            segments = sorted((broker.data / f"{topic}-{partition}").glob("*.log"))
            if segments:
                found[broker.id] = b"".join(segment.read_bytes() for segment in segments)
        return found


def _without_client_errors(condition: Callable[[], object]) -> Callable[[], object]:
    """Brokers that come and go refuse and lose connections: not yet, then."""

    def tried() -> object:
        try:
            return condition()
        except (ClientError, LookupError):
            return False

    return tried


@contextmanager
def a_cluster(
    directory: Path, brokers: int, *, zookeeper: HasConnect | str | None = None, links: Links | None = None, **config: object
) -> Iterator[Cluster]:
    """A running cluster of brokers 0 to `brokers` - 1. `config` has keys with underscores for dots, and `{id}` in values."""
    settings = {name.replace("_", "."): str(value) for name, value in config.items()}
    cluster = Cluster(directory, brokers, zookeeper, links, settings)
    try:
        cluster.start()
        began = time.monotonic()
        yield cluster
        statuses = cluster.stop()
        assert set(statuses.values()) <= {0}, f"brokers ended with {statuses}"
    except BaseException:
        print(f"--- the test ran for {time.monotonic() - began:.1f} s" if "began" in locals() else "--- the cluster did not start")
        for broker in cluster.brokers.values():
            print(f"--- the log of broker {broker.id}\n{broker.log()[-_LOG_CHARACTERS:]}")
        raise
    finally:
        cluster.end()
