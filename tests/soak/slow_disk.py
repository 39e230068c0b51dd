"""A round of random work on brokers whose disks are slow, with crashes and stops: nothing acknowledged is lost, nothing is left over.

One broker or three, on the embedded store or on a ZooKeeper, as the seed says or who asks. Some topics live on them (`slow_topics`), each
with a client of its own, while brokers are killed, stopped and started. In the end there is quiet, and everything has to come to rest:
every topic as its client knows it, every directory without a trace of what was deleted, every log without an error, every stop clean.

A seed gives the same topics the same wishes and the same delays; which thread meets which delay is the machine's.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from ottla.client.cluster import Cluster as Client
from ottla.client.errors import ClientError
from ottla.protocol.topic_partition import TopicPartition
from tests.soak import slow_requests as requests
from tests.soak.at_rest import bad_lines, badly_stopped, broken_logs, foreign_names
from tests.soak.slow_topics import SlowTopic
from tests.support.apache_kafka.jars import ToolMissingError
from tests.support.cluster import Cluster, ClusterBroker

SECONDS = 25.0
REST_SECONDS = 120.0
BROKERS = (1, 3)
STORES = ("embedded", "zookeeper")


class SlowBroker(ClusterBroker):
    """Each start has its own seed."""

    seed = 0
    starts = 0

    def program(self) -> list[str]:
        """See ClusterBroker."""
        self.starts += 1
        return ["tests.soak.slow_broker", str(self.seed * 1000 + self.id * 100 + self.starts)]


class SlowCluster(Cluster):
    """A cluster of them."""

    broker_type = SlowBroker


class SlowDiskRound:
    """See the module. `directory` is empty."""

    def __init__(self, seed: int, directory: Path, brokers: int | None = None, store: str | None = None, seconds: float = SECONDS) -> None:
        self.rng = random = Random(seed)
        self.counts: Counter[str] = Counter()
        self.is_over = False
        self.has_failed = False
        self._reasons: list[str] = []
        self._seconds = seconds
        chosen = random.choice(BROKERS), random.choice(STORES)
        count, self._store = brokers or chosen[0], store or chosen[1]
        self.broker_ids = range(count)
        dirs = random.choice([2, 3])
        self.log_dirs = {broker_id: [directory / f"data-{broker_id}-{at}" for at in range(dirs)] for broker_id in self.broker_ids}
        self._kills = random.random() < 0.7
        self._topics = random.choice([3, 6, 10])
        self._seed = seed
        zookeeper = _zookeeper() if self._store == "zookeeper" else None
        self.cluster = SlowCluster(directory, count, zookeeper, None, self._config(directory, dirs))
        self.is_calm = not self._kills and random.random() < 0.5

    def _config(self, directory: Path, dirs: int) -> dict[str, str]:
        choice = self.rng.choice
        return {
            "log.dirs": ",".join(f"{directory}/data-{{id}}-{at}" for at in range(dirs)),
            "background.threads": choice(["2", "4", "10"]),
            "log.retention.check.interval.ms": choice(["20", "100"]),
            "log.initial.task.delay.ms": "10",
            "log.cleaner.backoff.ms": choice(["1", "50"]),
            "log.cleaner.dedupe.buffer.size": "2200000",
            "log.cleaner.io.buffer.size": "20000",
            "log.cleaner.threads": choice(["1", "2"]),
            "log.segment.delete.delay.ms": choice(["0", "1", "50", "500"]),
            "log.flush.scheduler.interval.ms": choice(["5", "50"]),
            "log.flush.offset.checkpoint.interval.ms": choice(["20", "300"]),
            "log.flush.start.offset.checkpoint.interval.ms": choice(["20", "300", "60000"]),
            "replica.high.watermark.checkpoint.interval.ms": choice(["20", "5000"]),
            "log.index.size.max.bytes": choice(["200", "8192"]),
            "producer.id.expiration.check.interval.ms": "20",
        }

    @property
    def bootstrap(self) -> str:
        """Of all brokers."""
        return self.cluster.bootstrap

    def fail(self, reason: str) -> None:
        """Something is wrong: the round ends."""
        self._reasons.append(reason)
        self.has_failed = self.is_over = True

    def run(self) -> Counter[str]:
        """What was done, and how often. Raises AssertionError with what went wrong first."""
        SlowBroker.seed = self._seed
        self.counts[f"rounds of {len(self.broker_ids)} on {self._store}"] += 1
        topics: list[SlowTopic] = []
        try:
            self.cluster.start()
            topics += [SlowTopic(self, number, self._seed * 1000 + number) for number in range(self._topics)]
            for topic in topics:
                topic.start()
            self._disturb(time.monotonic() + self._seconds)
            self.is_over = True
            for topic in topics:
                topic.join()
                self.counts.update(topic.counts)
            self._raise_if_failed()
            self._come_to_rest(topics)
        finally:
            self.is_over = True
            self.cluster.end()
            for topic in topics:
                topic.close()
        return self.counts

    def _raise_if_failed(self) -> None:
        self._look_at_logs()
        assert not self._reasons, "\n".join(self._reasons)

    def _look_at_logs(self) -> None:
        for broker in self.cluster.brokers.values():
            if found := bad_lines(broker.log()):
                self.fail("\n".join([f"in {broker.log_file}:", *found[:60]]))

    # ---- misfortune

    def _disturb(self, end: float) -> None:
        try:
            while not self.is_over and (left := end - time.monotonic()) > 0:
                self._work(min(left, self.rng.uniform(0.5, 6)))
                self._look_at_logs()
                if not self.is_over and time.monotonic() < end:
                    self._misfortune()
        except AssertionError:
            self.fail(traceback.format_exc())

    def _work(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.is_over:
            time.sleep(0.05)
            for broker in self.cluster.brokers.values():
                if not broker.is_running:
                    self.fail(f"broker {broker.id} has ended")

    def _misfortune(self) -> None:
        if self.is_calm:
            return
        how = self.rng.choice(["kill", "kill", "stop"] if self._kills else ["stop"])
        several = self.rng.random() < 0.2
        victims = self.rng.sample(self.broker_ids, len(self.broker_ids) if several else 1)
        self.counts[f"{how}s"] += len(victims)
        for broker in (self.cluster.broker(each) for each in victims):
            if how == "kill":
                broker.kill()
            else:
                self._stop(broker)
        for each in victims:
            self.cluster.broker(each).launch()
        for each in victims:
            broker = self.cluster.broker(each)
            assert broker.wait_until_ready(), f"broker {each} did not come back:\n{broker.log_of_this_run()[-3000:]}"

    def _stop(self, broker: ClusterBroker) -> None:
        """Raises AssertionError when it does not end well."""
        status = broker.stop()
        assert status == 0, f"broker {broker.id} ended with status {status}"
        log_dirs = self.log_dirs[broker.id]
        found = [*badly_stopped(log_dirs, {}, []), *broken_logs(log_dirs)]
        assert not found, "\n".join([f"broker {broker.id} was stopped:", *found])

    # ---- rest

    def _come_to_rest(self, topics: list[SlowTopic]) -> None:
        with Client(self.bootstrap) as client:
            self._until(lambda: [] if requests.is_settled(client) else ["replicas are not all in sync, or on their way"])
            self.is_over = False
            for topic in topics:
                if topic.life is not None:
                    topic.check(topic.life)
            self.is_over = True
            hosted = {broker_id: _hosted(client, broker_id) for broker_id in self.broker_ids}
            self._until(
                lambda: [
                    line
                    for broker_id in self.broker_ids
                    for line in foreign_names(self.log_dirs[broker_id], hosted[broker_id], was_killed=self.counts["kills"] > 0)
                ]
            )
        ends = {
            TopicPartition(life.name, partition): end
            for life in (each.life for each in topics)
            if life
            for partition, end in life.ends.items()
        }
        statuses = self.cluster.stop()
        assert set(statuses.values()) == {0}, f"brokers ended with {statuses}"
        found = []
        for broker_id in self.broker_ids:
            found += badly_stopped(self.log_dirs[broker_id], ends, hosted[broker_id])
            found += broken_logs(self.log_dirs[broker_id])
        assert not found, "\n".join(found)
        self._raise_if_failed()

    def _until(self, look: Callable[[], list[str]]) -> None:
        """Until nothing is wrong any more. Raises AssertionError with what still is."""
        deadline = time.monotonic() + REST_SECONDS
        found = ["nothing answers"]
        while found:
            assert time.monotonic() < deadline, "\n".join([f"still after {REST_SECONDS} s:", *found[:20]])
            with suppress(ClientError, FileNotFoundError):  # which a thread just removed
                found = look()
            time.sleep(0.05)


def _hosted(client: Client, broker_id: int) -> dict[TopicPartition, bytes]:
    """The partitions that the broker has replicas of, with the ids of their topics."""
    return {
        TopicPartition(topic.name or "", partition.partition_index): topic.topic_id
        for topic in client.refresh(None).topics
        for partition in topic.partitions
        if broker_id in partition.replica_nodes
    }


def _zookeeper() -> str:
    """A chroot of its own. Raises AssertionError where there is no Java."""
    from tests.support.zookeeper import a_chroot, zookeeper_jars

    try:
        zookeeper_jars()
    except ToolMissingError as missing:
        raise AssertionError(f"the seed asks for a ZooKeeper ({missing}); `--store embedded` does without") from None
    return a_chroot()
