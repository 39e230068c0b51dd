"""Runs a node of Apache Kafka 4.4 that is broker and controller, in KRaft mode. All features are finalised."""

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.apache_kafka.java import DidNotStartError, JavaServer
from tests.support.apache_kafka.ports import free_ports
from tests.support.apache_kafka.serving import answers_api_versions
from tests.support.apache_kafka_4 import ensure_jars_4

_LOG4J = Path(__file__).with_name("log4j2.yaml")
_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
_START_SECONDS = 90
_ONE_REPLICA = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class ApacheKafka4:
    """One node. It keeps its ports and its data over a restart. `config` is added to its server.properties, and wins over the rest.

    `heap` is -Xms and -Xmx; `options` are the JVM's others. `pin_cpu` binds it to one core.
    """

    def __init__(
        self,
        directory: Path,
        config: Mapping[str, str] | None = None,
        *,
        pin_cpu: int | None = None,
        heap: str = "512m",
        options: Sequence[str] = ("-XX:+UseSerialGC",),
    ) -> None:
        self.directory = directory
        self.start_seconds = 0.0
        self._config = dict(config or {})
        self._options = (f"-Xms{heap}", f"-Xmx{heap}", *options, f"-Dlog4j2.configurationFile={_LOG4J}")
        self._server = JavaServer("Apache Kafka 4.4", directory / "broker.log", pin_cpu)
        self._ports: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port for clients, from the first start on."""
        assert self._ports is not None
        return self._ports[0]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._server.pid

    def log_text(self) -> str:
        """The log of the current run."""
        return self._server.said()

    def start(self) -> None:
        """Return when it answers ApiVersions. Raises DidNotStartError, ToolMissingError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        if self._ports is None:
            client, controller = free_ports(2)
            self._ports = client, controller
            properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties(client, controller).items()))
            self._format(properties)
        began = time.monotonic()
        self._server.launch(self._command("kafka.Kafka", str(properties)))
        self._server.wait_until(lambda: answers_api_versions("127.0.0.1", self.port), _START_SECONDS)
        self.start_seconds = time.monotonic() - began

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it; the data stays."""
        self._server.end(how)

    def _properties(self, client: int, controller: int) -> dict[str, str]:
        listeners = f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.directory / "data"),
            "group.initial.rebalance.delay.ms": "0",
            **_ONE_REPLICA,
            **self._config,
        }

    def _format(self, properties: Path) -> None:
        asked = ("format", "--standalone", "-t", _CLUSTER_ID, "-c", str(properties))
        command = self._command("kafka.tools.StorageTool", *asked)
        done = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS, check=False)
        if done.returncode:
            raise DidNotStartError(f"its storage cannot be formatted: {done.stdout[-1500:]}{done.stderr[-1500:]}")

    def _command(self, *program: str) -> list[str]:
        # Native libraries are unpacked there, and stay when the node is killed.
        return ["java", *self._options, f"-Djava.io.tmpdir={self.directory}", "-cp", f"{ensure_jars_4()}/*", *program]
