"""Waits until every broker's metadata lists all brokers; before that a broker may refuse three replicas for lack of
brokers.

Sends requests as a client does. Blocking, so the supervisor calls it in a thread.
"""

import time
from collections.abc import Iterable, Sequence

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.protocol.client_security import ClientSecurity

_ASK_SECONDS = 2.0
_PAUSE_SECONDS = 0.02


def wait_until_converged(broker_ids: Iterable[int], addresses: Sequence[str], seconds: float, security: ClientSecurity) -> bool:
    """Wait until the broker at each address lists all of these brokers and a controller; False when that takes longer
    than `seconds`."""
    expected = set(broker_ids)
    deadline = time.monotonic() + seconds
    return all(_wait_until_complete(expected, address, deadline, security) for address in addresses)


def _wait_until_complete(expected: set[int], address: str, deadline: float, security: ClientSecurity) -> bool:
    while time.monotonic() < deadline:
        try:
            with Cluster(address, timeout_seconds=_ASK_SECONDS, security=security) as cluster:
                answer = cluster.refresh([])
        except ClientError:
            continue
        if expected <= {broker.node_id for broker in answer.brokers} and answer.controller_id >= 0:
            return True
        time.sleep(_PAUSE_SECONDS)
    return False
