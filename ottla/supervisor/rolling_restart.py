"""Restarts the brokers of a supervisor one after the other, each only while every replica of the cluster is in sync.

The controller is restarted last, so that it moves once. `ottla cluster rolling-restart` calls this; the supervisor
itself restarts each broker, so a broker comes back even if the command is interrupted.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ottla.client.cluster import NO_LEADER, Cluster
from ottla.client.errors import ClientError
from ottla.protocol.client_security import ClientSecurity
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.supervisor import control
from ottla.supervisor.layout import address_of

_STATUS_SECONDS = 10.0
_ASK_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
_FAULTS_SHOWN = 5

Say = Callable[[str], None]
Advance = Callable[[int, int, str], None]
"""Takes the number of brokers that are done, that of all, and the work in progress, for a person who watches."""


class Trouble(Exception):
    """The restart cannot continue; the text is for the operator, and names the brokers that were not restarted."""


class RestartedCluster(Protocol):
    """The supervisor and the brokers as the restart sees them; tests replace it."""

    def brokers(self) -> list[dict[str, Any]]:
        """The supervisor's status of each broker. Raises control.NoSupervisor, Trouble."""

    def restart(self, broker_id: int, seconds: float) -> str:
        """Stop and start a broker; empty once it is ready, or the reason why it is not. Raises control.NoSupervisor,
        TimeoutError."""

    def metadata(self, address: str) -> MetadataResponse:
        """The metadata of all topics as this broker has it. Raises ClientError."""

    def monotonic(self) -> float:
        """Seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SupervisedCluster:
    """The supervisor of a directory, over its socket, and its brokers."""

    def __init__(self, directory: Path, security: ClientSecurity) -> None:
        """`security` is that of the connections to the brokers."""
        self._directory = directory
        self._security = security

    def brokers(self) -> list[dict[str, Any]]:
        """See RestartedCluster."""
        try:
            found: list[dict[str, Any]] = control.ask(self._directory, {"command": "status"}, _STATUS_SECONDS)["brokers"]
        except TimeoutError:
            what = f"the supervisor of {self._directory} does not answer within {_STATUS_SECONDS:g} s"
            raise Trouble(f"{what}: it is suspended, or this host is too busy") from None
        return found

    def restart(self, broker_id: int, seconds: float) -> str:
        """See RestartedCluster."""
        return str(control.ask(self._directory, {"command": "restart", "id": broker_id}, seconds).get("error", ""))

    def metadata(self, address: str) -> MetadataResponse:
        """See RestartedCluster."""
        with Cluster(address, timeout_seconds=_ASK_SECONDS, security=self._security) as cluster:
            return cluster.refresh(None)

    def monotonic(self) -> float:
        """See RestartedCluster."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See RestartedCluster."""
        time.sleep(seconds)


def rolling_restart(
    cluster: RestartedCluster, seconds: float, say: Say, only: Sequence[int] = (), advance: Advance = lambda *_: None
) -> None:
    """Restart all brokers of the supervisor, or `only` these. `seconds` limits each restart, and each wait for replicas.

    Raises Trouble, control.NoSupervisor, TimeoutError.
    """
    known = [int(broker["id"]) for broker in cluster.brokers()]
    unknown = sorted(set(only).difference(known))
    if unknown:
        raise Trouble(f"there is no broker {', '.join(map(str, unknown))}; there are {min(known)} to {max(known)}")
    left = [broker_id for broker_id in known if not only or broker_id in only]
    count = len(left)

    def told(what: str) -> None:
        advance(count - len(left), count, what)

    controller = _wait_for_replicas(cluster, seconds, left, told)
    left.sort(key=lambda broker_id: broker_id == controller)
    while left:
        broker_id = left[0]
        told(f"broker {broker_id} restarts")
        began = cluster.monotonic()
        reason = cluster.restart(broker_id, seconds)
        if reason:
            raise Trouble(f"{reason}\n{_not_restarted(left)}")
        ready = cluster.monotonic()
        del left[0]
        _wait_for_replicas(cluster, seconds, left, told)
        in_sync = cluster.monotonic()
        say(f"broker {broker_id}: restarted in {ready - began:.1f} s, all replicas in sync after {in_sync - ready:.1f} s")


def _wait_for_replicas(cluster: RestartedCluster, seconds: float, left: Sequence[int], told: Say) -> int:
    """Wait until every broker sees every replica in sync; returns the controller. Raises Trouble."""
    deadline = cluster.monotonic() + seconds
    while True:
        brokers = cluster.brokers()
        down = [broker for broker in brokers if broker["state"] != "ready"]
        if down:
            said = "; ".join(
                f"broker {each['id']} is {each['state']}" + (f" ({each['reason']})" if each["reason"] else "") for each in down
            )
            raise Trouble(f"{said}; `ottla cluster start ID` or `resume ID` brings a broker back\n{_not_restarted(left)}")
        controller, faults = _look(cluster, brokers)
        if not faults:
            return controller
        told(f"waiting: {faults[0]}" + (f" and {len(faults) - 1} more" if len(faults) > 1 else ""))
        if cluster.monotonic() > deadline:
            shown = "\n".join(faults[:_FAULTS_SHOWN])
            more = f"\nand {len(faults) - _FAULTS_SHOWN} more" if len(faults) > _FAULTS_SHOWN else ""
            raise Trouble(f"not every replica is in sync after {seconds:g} s:\n{shown}{more}\n{_not_restarted(left)}")
        cluster.sleep(_PAUSE_SECONDS)


def _look(cluster: RestartedCluster, brokers: Iterable[dict[str, Any]]) -> tuple[int, list[str]]:
    """The controller, and the faults that any of the brokers sees."""
    expected = {int(broker["id"]) for broker in brokers}
    controller = NO_LEADER
    faults: dict[str, None] = {}
    for broker in brokers:
        try:
            answer = cluster.metadata(address_of(broker))
        except ClientError as error:
            faults[f"broker {broker['id']}: {error}"] = None
            continue
        controller = answer.controller_id
        faults.update(dict.fromkeys(faults_of(answer, expected)))
    return controller, list(faults)


def faults_of(answer: MetadataResponse, expected: set[int]) -> list[str]:
    """A line for each fault: brokers that are not registered, no controller, partitions without leader or replicas that
    are not in sync."""
    alive = {broker.node_id for broker in answer.brokers}
    found = [f"broker {broker_id} is not registered" for broker_id in sorted(expected - alive)]
    if answer.controller_id not in alive:
        found.append("there is no controller")
    for topic in answer.topics:
        for partition in topic.partitions:
            name = f"{topic.name}-{partition.partition_index}"
            if partition.leader_id == NO_LEADER:
                found.append(f"{name} has no leader")
            elif missing := sorted(set(partition.replica_nodes).difference(partition.isr_nodes)):
                found.append(f"{name} is not in sync on broker {', '.join(map(str, missing))}")
    return found


def _not_restarted(left: Sequence[int]) -> str:
    if not left:
        return "all brokers were restarted"
    return f"not restarted: broker {', '.join(map(str, left))}. Remove the cause, then repeat"
