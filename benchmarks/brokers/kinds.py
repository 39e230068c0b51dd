"""Defines the kinds of brokers that can be measured. A kind starts one broker in its own folder, optionally bound to one core.

Add a kind by a class with the members of `Broker` and an entry in `KINDS`.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Protocol

from tests.support.apache_kafka import (
    KAFKA_VERSION,
    START_SCRIPT_OPTIONS,
    ApacheKafka,
    DidNotStartError,
    answers_api_versions,
    free_ports,
    pinned_to,
    process_guard,
)
from tests.support.apache_kafka_4 import KAFKA_4_VERSION
from tests.support.apache_kafka_4.node import ApacheKafka4

# For every kind: topics that are deleted between two loads release their pages before the next load, instead of being written to the disk.
COMMON_CONFIG = {"log.segment.delete.delay.ms": "500"}
_START_SECONDS = 60
_STOP_SECONDS = 30


class Broker(Protocol):
    """One broker of one kind; `start` returns when it answers ApiVersions, `start_s` is the time from its fork until then."""

    label: ClassVar[str]
    librdkafka_warm_up_s: ClassVar[float]

    def __init__(self, directory: Path, pin_cpu: int | None = None, config: Mapping[str, str] = COMMON_CONFIG) -> None: ...
    def start(self) -> None: ...
    def restart(self, *, is_clean: bool = False) -> None:
        """Kill it, or stop it, and start it again on its data."""

    def stop(self) -> None: ...
    def log_text(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def port(self) -> int: ...
    @property
    def start_s(self) -> float: ...


class ApacheKafkaBroker:
    """Apache Kafka with Apache's own JVM options and heap; its ZooKeeper is neither bound nor counted."""

    label: ClassVar[str] = f"Apache Kafka {KAFKA_VERSION}"
    librdkafka_warm_up_s: ClassVar[float] = 5.0  # the JIT compiles the hot path meanwhile

    def __init__(self, directory: Path, pin_cpu: int | None = None, config: Mapping[str, str] = COMMON_CONFIG) -> None:
        self._cluster = ApacheKafka(
            directory, 1, {"zookeeper.session.timeout.ms": "18000", **config}, pin_cpu=pin_cpu, heap="1g", options=START_SCRIPT_OPTIONS
        )

    def start(self) -> None:
        self._cluster.start()

    def restart(self, *, is_clean: bool = False) -> None:
        """See Broker."""
        broker_id = self._cluster.broker_ids[0]
        (self._cluster.stop_broker if is_clean else self._cluster.kill_broker)(broker_id)
        self._cluster.start_broker(broker_id)

    def stop(self) -> None:
        self._cluster.stop()

    def log_text(self) -> str:
        return self._cluster.log_text()

    @property
    def pid(self) -> int:
        return self._cluster.pid()

    @property
    def port(self) -> int:
        return self._cluster.port()

    @property
    def start_s(self) -> float:
        return self._cluster.start_seconds[self._cluster.broker_ids[0]]


class ApacheKafka4Broker:
    """Apache Kafka 4.4 with Apache's own JVM options and heap. It is its own controller, in the same process."""

    label: ClassVar[str] = f"Apache Kafka {KAFKA_4_VERSION}"
    librdkafka_warm_up_s: ClassVar[float] = 5.0  # the JIT compiles the hot path meanwhile

    def __init__(self, directory: Path, pin_cpu: int | None = None, config: Mapping[str, str] = COMMON_CONFIG) -> None:
        self._node = ApacheKafka4(directory, config, pin_cpu=pin_cpu, heap="1g", options=START_SCRIPT_OPTIONS)

    def start(self) -> None:
        self._node.start()

    def restart(self, *, is_clean: bool = False) -> None:
        """See Broker."""
        self._node.stop(signal.SIGTERM if is_clean else signal.SIGKILL)
        self._node.start()

    def stop(self) -> None:
        self._node.stop()

    def log_text(self) -> str:
        return self._node.log_text()

    @property
    def pid(self) -> int:
        return self._node.pid

    @property
    def port(self) -> int:
        return self._node.port

    @property
    def start_s(self) -> float:
        return self._node.start_seconds


class OttlaBroker:
    """Ottla as its command starts it, without ZooKeeper."""

    label: ClassVar[str] = "Ottla"
    librdkafka_warm_up_s: ClassVar[float] = 1.0

    def __init__(self, directory: Path, pin_cpu: int | None = None, config: Mapping[str, str] = COMMON_CONFIG) -> None:
        self._directory = directory
        self._pin_cpu = pin_cpu
        self._config = config
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._start_s = 0.0

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._port = self._port or free_ports(1)[0]
        settings = {"listeners": f"PLAINTEXT://127.0.0.1:{self._port}", "log.dirs": str(self._directory / "data"), **self._config}
        command = [str(self._program()), "serve"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        began = time.monotonic()
        with open(self._log, "wb") as output, pinned_to(self._pin_cpu):
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._directory, env=self._environment()
            )
        process_guard().watch(self._process.pid)
        while not answers_api_versions("127.0.0.1", self._port):
            if self._process.poll() is not None or time.monotonic() - began > _START_SECONDS:
                self.stop()
                raise DidNotStartError(f"`{' '.join(command)}` does not serve:\n{self.log_text()[-3000:]}")
            time.sleep(0.002)
        self._start_s = time.monotonic() - began

    def _program(self) -> Path:
        return Path(sys.executable).with_name("ottla")

    def _environment(self) -> dict[str, str]:
        """With compiled bytecode, as pip installs it; a developer's environment may forbid that. The first start of a run compiles."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**environment, "PYTHONPYCACHEPREFIX": str(self._directory.parent / "bytecode")}

    def restart(self, *, is_clean: bool = False) -> None:
        """See Broker."""
        self._end(signal.SIGTERM if is_clean else signal.SIGKILL)
        self.start()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            process_guard().end(self._process, how, _STOP_SECONDS)
            self._process = None

    def log_text(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        return self._port

    @property
    def start_s(self) -> float:
        return self._start_s


class PurePythonOttlaBroker(OttlaBroker):
    """Ottla without its compiled modules."""

    label: ClassVar[str] = "Ottla, pure Python"

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "OTTLA_PURE_PYTHON": "1"}


class OtherOttlaBroker(OttlaBroker):
    """Ottla of another checkout, which has its own `.venv`: for example, the state before a change."""

    label: ClassVar[str] = "Ottla, other checkout"

    def _program(self) -> Path:
        checkout = os.environ.get(OTHER_CHECKOUT)
        if not checkout:
            raise DidNotStartError(f"{OTHER_CHECKOUT} does not name the folder of the other checkout")
        return Path(checkout).resolve() / ".venv" / "bin" / "ottla"


OTHER_CHECKOUT = "OTTLA_OTHER"
KINDS: dict[str, type[Broker]] = {
    "apache": ApacheKafkaBroker,
    "ottla": OttlaBroker,
    "ottla-pure-python": PurePythonOttlaBroker,
    "ottla-other": OtherOttlaBroker,
    "apache-4": ApacheKafka4Broker,
}
REFERENCE = "apache"
REFERENCE_4 = "apache-4"
"""The reference of parts that need what only Apache Kafka 4 has."""
COMPARED = (REFERENCE, "ottla")
