"""Takes the last brokers of a supervisor out of service: drains them, stops them, and removes them from the host's cluster.

`ottla cluster shrink` calls this. The cluster and the supervisor keep all state, so the same call after an interruption continues. No
replica is left on a broker that is removed, also none of a topic that was created meanwhile.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.drain import Progress, drain, forget_settings, left_on
from ottla.client.errors import ClientError
from ottla.protocol.client_security import ClientSecurity
from ottla.supervisor import control
from ottla.supervisor.layout import address_of
from ottla.supervisor.restarts import State

_ORDER_SECONDS: Final = 150.0
"""More than the supervisor takes to stop a broker and, if it does not end, to kill it."""
_POLL_SECONDS: Final = 0.1


class HowToDrain(NamedTuple):
    """Partitions that are moved at a time, bytes per second and broker, and whether partitions may be on fewer racks than now."""

    at_once: int
    rate: int | None
    ignore_racks: bool


def shrink(directory: Path, security: ClientSecurity, count: int, how: HowToDrain, progress: Progress, seconds: float) -> list[int]:
    """Leave `count` brokers; returns the ids of those that were removed. `seconds` is the time for retries of requests to brokers.

    Raises ClientError if replicas or racks do not allow it, before anything is changed; control.NoSupervisor, TimeoutError.
    """
    brokers = _brokers(directory)
    staying, leaving = brokers[:count], brokers[count:]
    if not leaving:
        return []
    serving = [broker for broker in staying if broker["state"] == State.READY.value]
    if not serving:
        raise ClientError("none of the brokers that would stay is ready; `ottla cluster start ID` starts one")
    ids = [int(broker["id"]) for broker in leaving]
    bootstrap = ",".join(map(address_of, serving))
    with Cluster(bootstrap, timeout_seconds=seconds, security=security) as cluster:
        _start_needed(directory, cluster, set(ids), seconds)
        while True:
            drain(cluster, set(ids), progress, at_once=how.at_once, rate=how.rate, ignore_racks=how.ignore_racks)
            for broker_id in _alive(cluster).intersection(ids):
                forget_settings(cluster, broker_id)
            for broker_id in ids:
                _stop(directory, broker_id)
            _await_unregistered(cluster, set(ids), seconds)
            if not left_on(cluster, set(ids)):
                break
            for broker_id in ids:  # a topic was created after the drain had found nothing left
                _order(directory, "start", broker_id)
    for broker_id in reversed(ids):
        _order(directory, "remove", broker_id)
    return ids


def _start_needed(directory: Path, cluster: Cluster, ids: set[int], seconds: float) -> None:
    """Start brokers that a command has stopped, which was killed before it looked for new topics, if a partition is there alone.

    Without a leader it could not be moved.
    """
    stopped = {int(broker["id"]) for broker in _brokers(directory) if broker["state"] == State.STOPPED.value}
    needed = stopped & ids & _without_leader(cluster)
    for broker_id in sorted(needed):
        _order(directory, "start", broker_id)
    deadline = time.monotonic() + seconds
    while needed & _without_leader(cluster) and time.monotonic() < deadline:  # what is left then, the drain names
        time.sleep(_POLL_SECONDS)


def _without_leader(cluster: Cluster) -> set[int]:
    """The brokers that have replicas of partitions without a leader."""
    partitions = (partition for topic in cluster.refresh(None).topics for partition in topic.partitions)
    return {broker for partition in partitions if partition.leader_id < 0 for broker in partition.replica_nodes}


def _brokers(directory: Path) -> list[dict[str, Any]]:
    """The supervisor's status of each broker, in the order of the ids."""
    found: list[dict[str, Any]] = control.ask(directory, {"command": "status"}, _ORDER_SECONDS)["brokers"]
    return found


def _stop(directory: Path, broker_id: int) -> None:
    """Stop a broker unless it is stopped already, as after an interruption."""
    state = next((broker["state"] for broker in _brokers(directory) if broker["id"] == broker_id), State.STOPPED.value)
    if state not in {State.STOPPED.value, State.FAILED.value}:
        _order(directory, "stop", broker_id)


def _order(directory: Path, command: str, broker_id: int) -> None:
    """Raises ClientError if the supervisor refuses."""
    answer = control.ask(directory, {"command": command, "id": broker_id}, _ORDER_SECONDS)
    if "error" in answer:
        raise ClientError(str(answer["error"]))


def _await_unregistered(cluster: Cluster, ids: set[int], seconds: float) -> None:
    """Wait until the cluster lists none of these brokers, so that no new topic gets a replica there. Raises ClientError."""
    deadline = time.monotonic() + seconds
    while left := _alive(cluster) & ids:
        if time.monotonic() > deadline:
            raise ClientError(f"broker {', '.join(map(str, sorted(left)))} is stopped, and still registered; repeat the command")
        time.sleep(_POLL_SECONDS)


def _alive(cluster: Cluster) -> set[int]:
    return {broker.node_id for broker in cluster.refresh([]).brokers}
