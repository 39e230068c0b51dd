"""Waits until every broker's metadata lists all brokers; before that a broker may refuse three replicas for lack of
brokers.

Sends requests as a client does. Blocking, so the supervisor calls it in a thread.
"""

import time
from collections.abc import Iterable, Sequence

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.protocol.client_security import ClientSecurity
from ottla.protocol.messages.metadata import MetadataResponse

_ASK_SECONDS = 2.0
_PAUSE_SECONDS = 0.02


def wait_until_converged(
    broker_ids: Iterable[int], addresses: Sequence[str], seconds: float, security: ClientSecurity
) -> MetadataResponse | None:
    """Wait until the broker at each address lists all of these brokers and a controller. Returns the last answer; None when that takes
    longer than `seconds`."""
    expected = set(broker_ids)
    deadline = time.monotonic() + seconds
    found = None
    for address in addresses:
        found = _wait_until_complete(expected, address, deadline, security)
        if found is None:
            return None
    return found


def without_rack(answer: MetadataResponse) -> list[int]:
    """The brokers without a rack in a cluster where others have one: no topic can be created there (KIP-36)."""
    missing = sorted(broker.node_id for broker in answer.brokers if broker.rack is None)
    return missing if len(missing) < len(answer.brokers) else []


def _wait_until_complete(expected: set[int], address: str, deadline: float, security: ClientSecurity) -> MetadataResponse | None:
    while time.monotonic() < deadline:
        try:
            with Cluster(address, timeout_seconds=_ASK_SECONDS, security=security) as cluster:
                answer = cluster.refresh([])
        except ClientError:
            continue
        if expected <= {broker.node_id for broker in answer.brokers} and answer.controller_id >= 0:
            return answer
        time.sleep(_PAUSE_SECONDS)
    return None
