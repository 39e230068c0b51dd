"""Runs real Apache Kafka brokers beside one ZooKeeper, all under one folder.

Every broker keeps its port and its data over a restart. A broker counts as started when it answers ApiVersions; a cluster, when every
broker knows every other and the controller.
"""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.apache_kafka.class_archives import BROKER, using
from tests.support.apache_kafka.java import QUICK_OPTIONS, DidNotStartError, JavaServer, java_command
from tests.support.apache_kafka.ports import free_ports
from tests.support.apache_kafka.serving import answers_api_versions, known_brokers
from tests.support.apache_kafka.zookeeper import ZooKeeper

_START_SECONDS = 90
_ATTEMPTS = 3
START_SCRIPT_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""Options of Apache's own start script, for benchmarks."""


class ApacheKafka:
    """A cluster of `brokers` brokers with ids from `first_id`; with 0 brokers, only its ZooKeeper.

    `config` is added to every server.properties and wins over what stands there. `pin_cpu` binds the brokers, not ZooKeeper, to one core.
    `heap` is -Xms and -Xmx of a broker (Apache's default is 1g). With `zookeeper` the brokers join that ensemble, which stays the caller's;
    without it they have one of their own, and keep everything below `chroot` there.
    `options` are those of a broker's JVM beside its heap; by default, what starts soonest, and so does ZooKeeper.
    `config_of` gives what one broker has beside that, from its id and its port for clients; it is asked at every start.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        pin_cpu: int | None = None,
        heap: str = "512m",
        options: Sequence[str] | None = None,
        first_id: int = 0,
        zookeeper: ZooKeeper | None = None,
        chroot: str = "",
        config_of: Callable[[int, int], Mapping[str, str]] = lambda _id, _port: {},
    ) -> None:
        self.directory = directory
        self.zookeeper = zookeeper or ZooKeeper(directory, chroot, None if options is None else ())
        self.broker_ids = tuple(range(first_id, first_id + brokers))
        self._owns_zookeeper = zookeeper is None
        self._config = dict(config or {})
        self._config_of = config_of
        self._options = (f"-Xms{heap}", f"-Xmx{heap}", *((*QUICK_OPTIONS, *using(BROKER)) if options is None else options))
        self._servers = {i: JavaServer(f"Apache Kafka broker {i}", directory / f"broker-{i}.log", pin_cpu) for i in self.broker_ids}
        self._ports: dict[int, int] = {}
        self._launched_at: dict[int, float] = {}
        self.start_seconds: dict[int, float] = {}
        self._patience = dict.fromkeys(self.broker_ids, 1)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(i) for i in self.broker_ids)

    def address(self, broker_id: int | None = None) -> str:
        """host:port of a broker; of the first when not told which."""
        return f"127.0.0.1:{self.port(broker_id)}"

    def port(self, broker_id: int | None = None) -> int:
        return self._ports[self.broker_ids[0] if broker_id is None else broker_id]

    def pid(self, broker_id: int | None = None) -> int:
        """The process of a broker, to read its memory and processor time."""
        return self._servers[self.broker_ids[0] if broker_id is None else broker_id].pid

    def data_directory(self, broker_id: int | None = None) -> Path:
        return self.directory / f"data-{self.broker_ids[0] if broker_id is None else broker_id}"

    def log_text(self, broker_id: int | None = None) -> str:
        """The log of a broker's current run."""
        return self._servers[self.broker_ids[0] if broker_id is None else broker_id].said()

    def start(self) -> None:
        """Start ZooKeeper and all brokers at once; return when each knows all. Raises DidNotStartError, ToolMissingError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            if self._owns_zookeeper:
                self.zookeeper.start()
            for broker_id in self.broker_ids:
                self._launch(broker_id)
            for broker_id in self.broker_ids:
                self._wait(broker_id)
            self._wait_until_all_are_known()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything politely; the data stays. In reverse order, so that the controller (mostly the first) has the last word."""
        for server in reversed(self._servers.values()):
            server.end()
        if self._owns_zookeeper:
            self.zookeeper.stop()

    def start_broker(self, broker_id: int) -> None:
        """Start one broker again. After a kill its old registration must expire first, or the broker refuses to start."""
        self._wait_until_unregistered(broker_id)
        self._launch(broker_id)
        self._wait(broker_id)

    def stop_broker(self, broker_id: int) -> None:
        """Controlled shutdown (SIGTERM)."""
        self._servers[broker_id].end()

    def kill_broker(self, broker_id: int) -> None:
        """SIGKILL."""
        self._servers[broker_id].end(signal.SIGKILL)

    def _launch(self, broker_id: int) -> None:
        if broker_id not in self._ports:
            (self._ports[broker_id],) = free_ports(1)
        path = self.directory / f"broker-{broker_id}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self._properties(broker_id).items()), encoding="utf-8")
        # Native libraries are unpacked there, and stay when the broker is killed.
        command = java_command((*self._options, f"-Djava.io.tmpdir={self.directory}"), "kafka.Kafka", str(path))
        self._launched_at[broker_id] = time.monotonic()
        self._servers[broker_id].launch(command)

    def _wait(self, broker_id: int) -> None:
        first_start = broker_id not in self.start_seconds
        for attempt in range(_ATTEMPTS):
            try:
                self._servers[broker_id].wait_until(lambda: answers_api_versions("127.0.0.1", self._ports[broker_id]), _START_SECONDS)
            except DidNotStartError as failure:
                is_port_taken = first_start and "Address already in use" in str(failure)
                # Apache Kafka gives up starting when the machine is so busy that ZooKeeper does not hear of it for the session's time.
                is_too_slow = "Session expired" in str(failure)
                if not (is_port_taken or is_too_slow) or attempt == _ATTEMPTS - 1:
                    raise
                if is_port_taken:
                    del self._ports[broker_id]
                if is_too_slow:
                    self._patience[broker_id] *= 2
                self._wait_until_unregistered(broker_id)
                self._launch(broker_id)
            else:
                self.start_seconds[broker_id] = time.monotonic() - self._launched_at[broker_id]
                return

    def _wait_until_all_are_known(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        for broker_id in self.broker_ids:
            while True:
                controller, known = known_brokers("127.0.0.1", self._ports[broker_id])
                if controller >= 0 and known.issuperset(self.broker_ids):
                    break
                if time.monotonic() > deadline:
                    raise DidNotStartError(f"broker {broker_id} knows only the brokers {sorted(known)} and controller {controller}")
                time.sleep(0.02)

    def _wait_until_unregistered(self, broker_id: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self.zookeeper.has_ephemeral(f"/brokers/ids/{broker_id}"):
            if time.monotonic() > deadline:
                raise DidNotStartError(f"broker {broker_id} is still registered after {_START_SECONDS} s")
            time.sleep(0.05)

    def _properties(self, broker_id: int) -> dict[str, str]:
        replicas = str(min(len(self.broker_ids), 3))
        properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.address(broker_id)}",
            "log.dirs": str(self.data_directory(broker_id)),
            "zookeeper.connect": self.zookeeper.connect,
            "zookeeper.session.timeout.ms": "4000",
            "zookeeper.connection.timeout.ms": "60000",  # it gives up starting after the session's time otherwise
            "broker.rack": f"r{broker_id % 3}",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._config,
            **self._config_of(broker_id, self._ports[broker_id]),
        }
        session_timeout_ms = int(properties["zookeeper.session.timeout.ms"]) * self._patience[broker_id]
        return {**properties, "zookeeper.session.timeout.ms": str(session_timeout_ms)}
