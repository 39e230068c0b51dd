"""Brokers of Apache Kafka among those of a test's cluster, and brokers of Ottla in their place: same id, port, directories, ZooKeeper.

    with a_cluster_of_apache_kafka(tmp_path, 3) as (cluster, apache):
        exchange(cluster, apache, 0)        # from now on Ottla serves what broker 0 has

An `ApacheBroker` has the face of a ClusterBroker, so that everything a Cluster can be asked and told holds for either kind.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.tools import run_tool
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, ClusterBroker, a_cluster

QUICK = {
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.num.partitions": "4",
    "controlled.shutdown.retry.backoff.ms": "100",
    "log.index.size.max.bytes": "100000",
}
"""For brokers of Apache Kafka."""
_LOG_CHARACTERS = 6_000
APACHE = 9
"""The id of the broker of `a_mixed_cluster` that is not Ottla's."""
_CHROOT = "/clusters/mixed"


class ApacheBroker(ClusterBroker):
    """One broker of an ApacheKafka."""

    def __init__(self, apache: ApacheKafka, broker_id: int, *, runs: bool = True) -> None:
        super().__init__(broker_id, apache.port(broker_id), properties_of(apache, broker_id), apache.directory)
        self._apache = apache
        self._runs = runs

    @property
    def pid(self) -> int:
        return self._apache.pid(self.id)

    @property
    def is_running(self) -> bool:
        return self._runs

    def log_of_this_run(self) -> str:
        return self._apache.log_text(self.id)

    def launch(self) -> None:
        self._apache.start_broker(self.id)
        self._runs = True

    def wait_until_ready(self) -> bool:
        return True

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """After a signal that ends it; 0 always, as Java has its own idea of statuses."""
        self._apache.stop_broker(self.id)
        self._runs = self.is_paused = False
        return 0


def properties_of(apache: ApacheKafka, broker_id: int) -> dict[str, str]:
    """The properties in the file with which the broker was started."""
    text = (apache.directory / f"broker-{broker_id}.properties").read_text()
    return dict(line.split("=", 1) for line in text.splitlines())


def exchange(cluster: Cluster, apache: ApacheKafka, broker_id: int, *, start: bool = True) -> ClusterBroker:
    """The broker, which does not run, is from now on of the other kind; returns when it serves."""
    before = cluster.brokers[broker_id]
    assert not before.is_running, f"broker {broker_id} still runs"
    found: ClusterBroker
    if isinstance(before, ApacheBroker):
        found = ClusterBroker(broker_id, before.port, before.properties, cluster.directory)
        eventually(lambda: not apache.zookeeper.has_ephemeral(f"/brokers/ids/{broker_id}"), what=f"broker {broker_id} is unregistered")
    else:
        found = ApacheBroker(apache, broker_id, runs=False)
    cluster.brokers[broker_id] = found
    if start:
        found.start()
    return found


@contextmanager
def a_cluster_of_apache_kafka(
    directory: Path, brokers: int, config: Mapping[str, str] | None = None
) -> Iterator[tuple[Cluster, ApacheKafka]]:
    """All brokers are Apache Kafka's at first. Nothing runs afterwards; when the block fails the logs of all are printed."""
    with ApacheKafka(directory / "apache", brokers, {**QUICK, **(config or {})}, heap="256m") as apache:
        cluster = Cluster(directory / "ottla", 0, apache.zookeeper, None, {})
        for broker_id in apache.broker_ids:
            cluster.brokers[broker_id] = ApacheBroker(apache, broker_id)
        try:
            yield cluster, apache
            cluster.stop()
        except BaseException:
            for broker in cluster.brokers.values():
                said = "".join(path.read_text(errors="replace")[-_LOG_CHARACTERS:] for path in logs_of(cluster, apache, broker.id))
                print(f"--- the logs of broker {broker.id}\n{said}", file=sys.stderr)
            raise
        finally:
            for broker in cluster.brokers.values():
                if not isinstance(broker, ApacheBroker) and broker.is_running:
                    broker.kill()


@contextmanager
def a_mixed_cluster(directory: Path, protocol: str = "3.9", config: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Brokers 0 and 1 are Ottla's; Apache's is the controller at first. `config` is given to all."""
    theirs, _, ours = protocol.partition("/")
    settings = {"replica.lag.time.max.ms": "2000", **(config or {}), "inter.broker.protocol.version": theirs}
    more = {name.replace(".", "_"): value for name, value in (config or {}).items()}
    with (
        ApacheKafka(directory / "apache", 1, settings, first_id=APACHE, chroot=_CHROOT) as apache,
        a_cluster(directory / "ottla", 2, zookeeper=apache.zookeeper, inter_broker_protocol_version=ours or theirs, **more) as cluster,
    ):
        cluster.brokers[APACHE] = ApacheBroker(apache, APACHE)
        cluster.wait_until_registered()
        assert cluster.controller_id() == APACHE
        yield cluster


def give_control_to_ottla(cluster: Cluster) -> None:
    """Apache's broker is restarted in a controlled way; it is a member again when this returns."""
    cluster.broker(APACHE).restart()
    cluster.wait_until_registered()
    assert cluster.controller_id() != APACHE


def dumps_of(cluster: Cluster, topic: str, partition: int, *options: str, seconds: float = 120.0) -> dict[int, str]:
    """By broker, what Apache Kafka's DumpLogSegments says of its log of the partition: every batch and record, without names of files.

    `options` say how the records are decoded.
    """
    segments = {
        path: broker.id for broker in cluster.brokers.values() for path in sorted((broker.data / f"{topic}-{partition}").glob("*.log"))
    }
    arguments = ("--files", ",".join(map(str, segments)), "--deep-iteration", *(options or ("--print-data-log",)))
    dumped = run_tool("kafka.tools.DumpLogSegments", *arguments, timeout=seconds)
    assert dumped.returncode == 0, dumped
    assert "isvalid: false" not in dumped.stdout
    found: dict[int, str] = dict.fromkeys(segments.values(), "")
    of = -1
    for line in dumped.stdout.splitlines(keepends=True):
        if line.startswith("Dumping "):
            of = segments[Path(line.removeprefix("Dumping ").strip())]
        else:
            found[of] += line
    return found


def wait_until_replicas_are_equal(cluster: Cluster, topic: str, partition: int, count: int = 3) -> None:
    """Byte for byte."""

    def equal() -> bool:
        logs = cluster.log_files(topic, partition)
        return len(logs) == count and len(set(logs.values())) == 1

    eventually(equal, 60, f"the {count} logs of {topic}-{partition} are equal")


def logs_of(cluster: Cluster, apache: ApacheKafka, broker_id: int) -> list[Path]:
    """The log files of processes of either kind with this id."""
    return [path for path in (folder / f"broker-{broker_id}.log" for folder in (apache.directory, cluster.directory)) if path.exists()]
