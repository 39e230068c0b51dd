"""Defines the kinds of clusters that can be measured: three brokers by default, on all cores, of Apache Kafka or of Ottla.

Add a kind by a class with the members of `Cluster` and an entry in `KINDS`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Protocol

from tests.support.apache_kafka import KAFKA_VERSION, START_SCRIPT_OPTIONS, ApacheKafka
from tests.support.cluster import Cluster as OttlaProcesses

BROKERS = 3
SESSION_TIMEOUT_MS = "4000"
CONFIG = {
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "replica.lag.time.max.ms": "30000",
    "log.segment.delete.delay.ms": "500",
    "default.replication.factor": str(BROKERS),
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
}


class Cluster(Protocol):
    """Brokers 0, 1 and so on."""

    label: ClassVar[str]
    warm_up_s: ClassVar[float]

    def __init__(self, directory: Path, config: Mapping[str, str] = CONFIG, brokers: int = BROKERS) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    @property
    def bootstrap(self) -> str: ...
    def port(self, broker_id: int) -> int: ...
    def pid(self, broker_id: int) -> int: ...
    def kill_broker(self, broker_id: int) -> None: ...
    def stop_broker(self, broker_id: int) -> None: ...
    def start_broker(self, broker_id: int) -> None: ...


class ApacheCluster(ApacheKafka):
    """Apache Kafka with its own ZooKeeper."""

    label: ClassVar[str] = f"Apache Kafka {KAFKA_VERSION}"
    warm_up_s: ClassVar[float] = 120.0  # three JITs share two cores with the load: a fifth of the speed after 12 s

    def __init__(self, directory: Path, config: Mapping[str, str] = CONFIG, brokers: int = BROKERS) -> None:
        super().__init__(directory, brokers, config, heap="1g", options=START_SCRIPT_OPTIONS)


class OttlaCluster:
    """Ottla's processes with a shared metadata file."""

    label: ClassVar[str] = "Ottla"
    warm_up_s: ClassVar[float] = 2.0

    def __init__(self, directory: Path, config: Mapping[str, str] = CONFIG, brokers: int = BROKERS) -> None:
        self._processes = OttlaProcesses(directory, brokers, self._connect(directory), None, dict(config))

    def _connect(self, directory: Path) -> str | None:
        return None

    def start(self) -> None:
        self._processes.start()

    def stop(self) -> None:
        self._processes.stop()
        self._processes.end()

    @property
    def bootstrap(self) -> str:
        return self._processes.bootstrap

    def port(self, broker_id: int) -> int:
        return self._processes.broker(broker_id).port

    def pid(self, broker_id: int) -> int:
        return self._processes.broker(broker_id).pid

    def kill_broker(self, broker_id: int) -> None:
        self._processes.broker(broker_id).kill()

    def stop_broker(self, broker_id: int) -> None:
        self._processes.broker(broker_id).stop()

    def start_broker(self, broker_id: int) -> None:
        self._processes.broker(broker_id).start()


class OttlaOnZooKeeper(OttlaCluster):
    """Ottla's processes on a ZooKeeper like Apache Kafka's."""

    label: ClassVar[str] = "Ottla on ZooKeeper"

    def _connect(self, directory: Path) -> str | None:
        self._ensemble = ApacheKafka(directory / "ensemble", 0)
        self._ensemble.start()
        return self._ensemble.zookeeper.connect

    def stop(self) -> None:
        super().stop()
        self._ensemble.stop()


KINDS: dict[str, type[Cluster]] = {"apache": ApacheCluster, "ottla-zookeeper": OttlaOnZooKeeper, "ottla": OttlaCluster}
