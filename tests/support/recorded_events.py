"""Repeats the events of the recorded cluster of Apache Kafka with real brokers on a real ZooKeeper, and compares the trees.

`recorded_trees` has the tree before every event and at every moment of the recording: all writes until then, counted as ZooKeeper counts.
Only the topics of the events are compared (TOPICS); partitions of other topics change independently.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from ottla.protocol.topic_partition import TopicPartition
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, ClusterBroker
from tests.support.cluster_links import Links, some_links
from tests.support.reassignments import elect_preferred
from tests.support.recorded_history import GOLDEN, ComparableNode, recorded_tree, without_what_varies
from tests.support.zookeeper import ZooKeeperServer, a_chroot, shared_zookeeper
from tests.support.zookeeper_log import written

SECONDS = 90.0
TOPICS = ("cfg-topic", "auto", "auto1", "manual", "move", "move2", "deldown", "unclean")
_OF_A_TOPIC = re.compile(r"/(?:brokers/topics|config/topics|admin/delete_topics)/([^/]+)")
_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_LEFT_OUT = re.compile(r"/(config/(changes|users|clients|ips|brokers)/.*|latest_producer_id_block|zookeeper.*|)")
"""Of entities that the events are not about."""
_OWN = (
    (re.compile(r'"topic_id":"[\w-]{22}"'), '"topic_id":"*"'),
    (re.compile(r"://127\.0\.0\.1:\d+"), "://127.0.0.1:*"),
    (re.compile(r'"port":\d+'), '"port":*'),
    # Ottla supports features, which a cluster of Apache Kafka 3.9 on ZooKeeper does not: see docs/differences.md.
    (re.compile(r'"features":\{("[^"]+":\{[^}]*\},?)*\}'), '"features":{}'),
)

SETTINGS = {
    # The test ends the session of a broker that was killed. The session of a suspended or slow broker must not end.
    "zookeeper.session.timeout.ms": "50000",
    # The next turn would come by chance of time.
    "auto.leader.rebalance.enable": "false",
    # As in the recording: the ISR shrinks once. `Replay.let_nobody_lag` for the time afterwards.
    "replica.lag.time.max.ms": "6000",
}
"""Nothing else than the events may happen to the cluster: every leader and ISR that changes on its own changes versions for good."""
LONG_MS = "120000"

Write = tuple[str, str, str | None]
"""Operation, path and data of one change, as it would be in any cluster."""
Tree = dict[str, ComparableNode]


@cache
def recorded_trees() -> dict[str, Tree]:
    """The trees by moment, or by the first word of the next event. They agree with the files of the moments."""
    tree: dict[str, tuple[str | None, bool, int]] = {}
    owners: dict[str, str] = {}
    found: dict[str, Tree] = {}
    for text in (GOLDEN / "writes.jsonl").read_text().splitlines():
        line: dict[str, Any] = json.loads(text)
        if "moment" in line or "event" in line:
            name = (line.get("moment") or line["event"]).split()[0]
            found[name] = _compared(tree)
            if "moment" in line:
                assert found[name] == _compared({path: node for path, node in recorded_tree(name).items() if path != "/"}), name
        elif line["op"] == "closeSession":
            for path in [path for path, owner in owners.items() if owner == line["session"]]:
                tree.pop(path, None)
                del owners[path]
        elif not any(each["op"] == "error" for each in line.get("ops", [line])):
            for each in line.get("ops", [line]):
                _apply(tree, owners, each, line)
    return found


def _apply(tree: Tree, owners: dict[str, str], operation: dict[str, Any], line: dict[str, Any]) -> None:
    path = operation.get("path", "")
    if operation["op"] == "create":
        tree[path] = (operation["data"], operation["ephemeral"], 0)
        if operation["ephemeral"]:
            owners[path] = line["session"]
    elif operation["op"] == "setData":
        tree[path] = (operation["data"], tree[path][1], tree[path][2] + 1)
    elif operation["op"] == "delete":
        tree.pop(path, None)


def _compared(tree: Tree) -> Tree:
    """The part of a tree that is compared, in a form that is the same for any cluster."""
    found = {}
    for path, (data, is_ephemeral, version) in tree.items():
        topic = _OF_A_TOPIC.match(path)
        if not _LEFT_OUT.fullmatch(path) and (topic is None or topic[1] in TOPICS):
            found[path] = (_anywhere(data), is_ephemeral, version)
    return found


def _anywhere(data: str | None) -> str | None:
    data = without_what_varies(data)
    for pattern, instead in _OWN if data else ():
        data = pattern.sub(instead, data or "")
    return data


def recorded_writes(until: str) -> list[Write]:
    """The writes up to a moment, in order."""
    found: list[Write] = []
    for text in (GOLDEN / "writes.jsonl").read_text().splitlines():
        line: dict[str, Any] = json.loads(text)
        if line.get("moment") == until:
            break
        operations = line.get("ops", [line])
        if not any(each.get("op") == "error" for each in operations):
            changes = (each for each in operations if each.get("op") in {"create", "setData", "delete"})
            found += [(each["op"], each["path"], _anywhere(each.get("data"))) for each in changes]
    return found


@cache
def spared() -> Counter[TopicPartition]:
    """Leader epochs that Ottla does not need when a controller dies: see docs/differences.md, "a new controller finds a partition ..."."""
    found: Counter[TopicPartition] = Counter()
    begun = False
    for text in (GOLDEN / "writes.jsonl").read_text().splitlines():
        line: dict[str, Any] = json.loads(text)
        if line.get("moment") == "offline-partition":
            break
        begun = begun or line.get("event", "").startswith("unclean-prepare")
        for each in line.get("ops", ()) if begun else ():
            match = _STATE.fullmatch(each.get("path", ""))
            if match and each["op"] == "setData":
                state = json.loads(each["data"])
                if state["leader"] < 0 and state["isr"] == [0]:  # broker 0 lives
                    found[TopicPartition(match[1], int(match[2]))] += 1
    return found


class Replay:
    """The recorded cluster, being made again. `cluster` has brokers 0 to 2, of which none runs at first."""

    def __init__(self, cluster: Cluster, links: Links, zookeeper: ZooKeeperServer, chroot: str) -> None:
        self.cluster = cluster
        self.links = links
        self.is_behind = False
        """Whether the controller was killed, which Apache Kafka's next one takes an epoch more for."""
        self._zookeeper = zookeeper
        self._chroot = chroot

    def broker(self, broker_id: int) -> ClusterBroker:
        """By its id."""
        return self.cluster.broker(broker_id)

    def tree(self) -> Tree:
        """As it stands."""
        found: Tree = {}
        for path, (data, stat) in self._zookeeper.tree(self._chroot).items():
            if path != "/":
                found[path] = (None if data is None else data.decode(), stat.ephemeralOwner != 0, stat.version)
        return _compared(found)

    def created(self) -> list[str]:
        """All paths in the order in which they were created."""
        tree = self._zookeeper.tree(self._chroot)
        return sorted(tree.keys() - {"/"}, key=lambda path: tree[path][1].czxid)

    def written(self) -> list[Write]:
        """All that was written so far, in order."""
        directory = self._zookeeper.directory / "zookeeper"
        writes = written(directory, self._chroot)
        return [(each.operation, each.path, _anywhere(None if each.data is None else each.data.decode())) for each in writes]

    def wait_for(self, name: str) -> None:
        """Until the tree is the recorded one at this moment, or before this event."""
        recorded = self._expected(name)
        different: dict[str, tuple[object, object]] = {}

        def is_reached() -> bool:
            try:
                tree = self.tree()
            except Exception:  # a node went away while the tree was read
                return False
            different.clear()
            different.update({path: (recorded.get(path), tree.get(path)) for path in recorded.keys() | tree.keys()})
            for path in [path for path, (theirs, ours) in different.items() if theirs == ours]:
                del different[path]
            return not different

        try:
            eventually(is_reached, SECONDS, name)
        except AssertionError:
            lines = [f"{path}\n  recorded {theirs}\n  ours     {ours}" for path, (theirs, ours) in sorted(different.items())]
            raise AssertionError("\n".join([f"not as before, or at, {name}:", *lines])) from None

    def let_nobody_lag(self) -> None:
        """From its next start on no broker lets a follower out of the ISR that is slow only because the machine is busy."""
        for broker in self.cluster.brokers.values():
            broker.properties["replica.lag.time.max.ms"] = LONG_MS

    def elect_until(self, name: str) -> None:
        """Elect what was elected before this event by chance of time: leaders that differ from the recorded ones are not preferred."""
        for path, (data, _, _) in self._expected(name).items():
            match = _STATE.fullmatch(path)
            if match and data:
                state = json.loads(data)
                topic, partition = match[1], int(match[2])
                self.cluster.wait_until_isr_is(topic, partition, *state["isr"], seconds=SECONDS)
                if self.cluster.leader_of(topic, partition) != state["leader"]:
                    elect_preferred(self.cluster, topic, partition)
        self.wait_for(name)

    def kill(self, broker_id: int) -> None:
        """SIGKILL; its session ends at once, instead of after its timeout."""
        session = self._zookeeper.owner_of(f"{self._chroot}/brokers/ids/{broker_id}")
        self.broker(broker_id).kill()
        self._zookeeper.expire(session)

    def expire(self, broker_id: int) -> None:
        """End the session of a broker that runs, or is suspended."""
        self._zookeeper.expire(self._zookeeper.owner_of(f"{self._chroot}/brokers/ids/{broker_id}"))

    def create(self, path: str, body: object) -> None:
        """As a tool of old times would."""
        with self._client() as client:
            client.create(path, json.dumps(body).encode())

    def delete(self, path: str) -> None:
        """As an operator in need would."""
        with self._client() as client:
            client.delete(path)

    def data(self, path: str) -> Any:
        """A node that has JSON; None when it is not there."""
        with self._client() as client:
            return json.loads(client.get(path)[0]) if client.exists(path) else None

    def _expected(self, name: str) -> Tree:
        recorded = dict(recorded_trees()[name])
        if self.is_behind:
            for (topic, partition), behind in spared().items():
                path = f"/brokers/topics/{topic}/partitions/{partition}/state"
                if path in recorded:
                    data, is_ephemeral, version = recorded[path]
                    epoch = int(json.loads(data or "{}")["leader_epoch"])
                    sooner = (data or "").replace(f'"leader_epoch":{epoch}', f'"leader_epoch":{epoch - behind}')
                    recorded[path] = (sooner, is_ephemeral, version - behind)
        return recorded

    @contextmanager
    def _client(self) -> Iterator[KazooClient]:
        client = KazooClient(self._zookeeper.connect + self._chroot)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()


@contextmanager
def a_replay(directory: Path) -> Iterator[Replay]:
    """Three brokers that are not started yet. When the block fails the logs of all are printed."""
    connect = a_chroot()
    with some_links() as links:
        cluster = Cluster(directory, 3, connect, links, SETTINGS)
        cluster._make()
        try:
            yield Replay(cluster, links, shared_zookeeper(), "/" + connect.partition("/")[2])
            assert set(cluster.stop().values()) <= {0}
        except BaseException:
            for broker in cluster.brokers.values():
                print(f"--- the log of broker {broker.id}\n{broker.log()[-6_000:]}")
            raise
        finally:
            cluster.end()
