"""Runs the Kafka Streams application of `StreamsApplication.java` against a cluster, and judges what it wrote.

The jars are fetched by Maven into `KAFKA_STREAMS_LIBS`, or `~/.cache/kafka-streams-3.9.1`, once.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from tests.support.apache_kafka.jars import KAFKA_VERSION, ensure_jars_of
from tests.support.apache_kafka.java import QUICK_OPTIONS, JavaServer
from tests.support.apache_kafka.marks import needs_jars_in
from tests.support.apache_kafka.programs import in_class_path
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster
from tests.support.read_committed import counting_committed, read_committed

_POM = Path(__file__).with_name("pom.xml")
_PROGRAM = Path(__file__).parents[1] / "java" / "StreamsApplication.java"
_LOG4J = Path(__file__).parents[1] / "apache_kafka" / "log4j.properties"
_LIBS = Path(os.environ.get("KAFKA_STREAMS_LIBS") or Path.home() / ".cache" / f"kafka-streams-{KAFKA_VERSION}")

needs_kafka_streams = needs_jars_in(_LIBS)
"""Marks of tests that run the application."""


PARTITIONS = 2
_TOPICS = ("lines", "left", "right", "counts", "joined")
_WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "runs", "away"]
_SECONDS = 180.0


def ensure_streams_jars() -> Path:
    """Their folder, filled by Maven if it is not yet. Raises ToolMissingError."""
    return ensure_jars_of(_POM, _LIBS)


class Input:
    """Builds the input of the application's topics, and the output that must follow from the input."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._random = random.Random(seed)
        self._keys = 0
        self.words: Counter[str] = Counter()
        self.pairs: set[tuple[str, str]] = set()
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})

    def write(self, count: int) -> None:
        """So many lines, and as many keys with two values on the one side and one on the other; returns when all are acknowledged."""
        for _ in range(count):
            line = self._random.choices(_WORDS, k=4)
            self.words.update(line)
            self._producer.produce("lines", " ".join(line).encode())
            key, self._keys = f"k{self._keys}", self._keys + 1
            for topic, value in (("left", "a"), ("right", "x"), ("left", "b")):
                self._producer.produce(topic, value.encode(), key.encode())
            self.pairs |= {(key, "a+x"), (key, "b+x")}
        assert self._producer.flush(_SECONDS) == 0


class Application:
    """One instance, in a process of its own."""

    def __init__(self, cluster: Cluster, directory: Path, stores: str, libs: Path, standbys: int = 0) -> None:
        directory.mkdir()
        self._command = [
            "java", "-Xmx256m", *QUICK_OPTIONS, f"-Dlog4j.configuration=file:{_LOG4J}", f"-Djava.io.tmpdir={directory}",
            *in_class_path(_PROGRAM, libs), cluster.bootstrap, "application", str(directory), str(min(3, len(cluster.brokers))),
            stores, str(standbys),
        ]  # fmt: skip
        self._process = JavaServer("the Streams application", directory / "application.log")

    def start(self) -> None:
        """Returns at once."""
        self._process.launch(self._command)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: it closes its transactions and leaves its group."""
        self._process.end()

    def said(self) -> str:
        """The log of its last run."""
        return self._process.said()


@contextmanager
def an_application(
    cluster: Cluster, directory: Path, stores: str = "in_memory", libs: Path | None = None, standbys: int = 0
) -> Iterator[Application]:
    """Runs when the block begins; its topics are there. `libs` has the jars of another release than 3.9.1."""
    for topic in _TOPICS:
        cluster.create_topic(topic, partitions=PARTITIONS, min_insync_replicas=min(2, len(cluster.brokers)))
    application = Application(cluster, directory, stores, ensure_streams_jars() if libs is None else libs, standbys)
    application.start()
    try:
        yield application
    except BaseException:
        print(f"--- the application\n{application.said()[-6_000:]}")
        raise
    finally:
        application.kill()


def wait_for_output(cluster: Cluster, share: float, given: Input) -> None:
    """Until this share of all pairs and counts can be read, or more."""

    wanted = {"joined": share * len(given.pairs), "counts": share * given.words.total()}
    for topic, records in wanted.items():
        with counting_committed(cluster, topic, PARTITIONS) as count:
            eventually(lambda count=count, records=records: count() >= records, _SECONDS, f"{share:.0%} of the topic {topic} is there")


def check_output(cluster: Cluster, given: Input) -> None:
    """Every pair is there once, and of every word all counts are, in order."""
    pairs = Counter((each.key, each.value) for each in read_committed(cluster, "joined", PARTITIONS))
    assert pairs == Counter(given.pairs)
    counts = defaultdict(list)
    for each in read_committed(cluster, "counts", PARTITIONS):
        counts[each.key].append(int(each.value))
    assert counts == {word: list(range(1, count + 1)) for word, count in given.words.items()}


def check_rounds(cluster: Cluster, directory: Path, stores: str, rounds: int, lines: int, libs: Path | None = None) -> None:
    """Run the application while in each round it and a broker are killed and started again; the output must be exactly right."""
    given = Input(cluster, seed=rounds)
    with an_application(cluster, directory, stores, libs) as application:
        given.write(lines)
        wait_for_output(cluster, 0.5, given)
        for bounce in range(rounds):
            given.write(lines)
            application.kill()
            application.start()
            given.write(lines)
            broker = cluster.broker(cluster.leader_of("lines", bounce % 2))
            broker.kill()
            given.write(lines)
            wait_for_output(cluster, 0.9, given)
            broker.start()
            cluster.wait_until_registered()
        wait_for_output(cluster, 1.0, given)
        application.stop()
    check_output(cluster, given)
