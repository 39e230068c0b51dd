"""Lists the cells of the fault matrix: fault, target, acknowledgements, store, client. Pure.

`CELLS` are all cells. `ORDINARY` are those of a normal run of the tests: every fault and every target at least once, in the riskiest
cells.
"""

from itertools import product
from typing import NamedTuple

BROKER_FAULTS = ("stop", "kill", "pause", "cut", "bounce", "crash-bounce", "reset")
"""To one broker: SIGTERM; SIGKILL; SIGSTOP for twice the session timeout; no link to other brokers and ZooKeeper, silently, while clients
reach it; SIGTERM and start at once; SIGKILL and start at once; its links break once and may be made anew."""
ZOOKEEPER_FAULTS = ("stop", "kill", "pause", "cut", "bounce")
"""To ZooKeeper: away for twice the session timeout, but for bounce."""
ROLES = ("leader", "follower", "controller")
ZOOKEEPER_TARGET = "zookeeper"


class Cell(NamedTuple):
    """`target` is a role or "zookeeper"; `expire` is the fault of a session that ZooKeeper ends."""

    fault: str
    target: str
    acks: str = "all"
    store: str = "zookeeper"
    client: str = "confluent-kafka"

    @property
    def name(self) -> str:
        """Unique, for reports and to choose it by."""
        return f"{self.fault}-{self.target}-acks={self.acks}-{self.store}-{self.client}"

    @property
    def may_lose(self) -> bool:
        """With acks=1, what only a leader has that is replaced. Sessions that ZooKeeper's absence ends have leaders replaced as well."""
        return self.acks == "1" and self.target != "follower"


def _all() -> list[Cell]:
    by_broker = [Cell(fault, role, acks) for acks, fault, role in product(("all", "1"), (*BROKER_FAULTS, "expire"), ROLES)]
    by_zookeeper = [Cell(fault, ZOOKEEPER_TARGET, acks) for acks, fault in product(("all", "1"), ZOOKEEPER_FAULTS)]
    embedded = [
        Cell(fault, role, "all", "embedded")
        for fault, role in product(("stop", "kill", "pause", "cut", "bounce"), ("leader", "controller"))
    ]
    clients = [
        Cell(fault, role, "all", "zookeeper", client)
        for client, fault, role in product(("kafka-python", "java"), ("stop", "kill", "pause", "cut"), ("leader", "controller"))
    ]
    return [*by_broker, *by_zookeeper, *embedded, *clients]


CELLS = _all()
ORDINARY = [
    Cell("kill", "leader"),
    Cell("pause", "leader"),
    Cell("cut", "leader"),
    Cell("bounce", "leader"),
    Cell("stop", "controller"),
    Cell("expire", "leader"),
    Cell("expire", "controller"),
    Cell("bounce", ZOOKEEPER_TARGET),
    Cell("kill", "leader", "1"),
    Cell("cut", "follower", "1"),
    Cell("kill", "controller", "all", "embedded"),
    Cell("kill", "leader", "all", "zookeeper", "kafka-python"),
]
