"""Free TCP ports for servers that must be told their port before they start.

Apache Kafka's advertised address must stay the same over a restart, and ZooKeeper refuses `clientPort=0`, so a port is chosen here. It is
taken from below the range the kernel hands to outgoing connections: between choosing and listening nothing but another chooser can take it,
and whoever starts a server chooses again when the port was lost.
"""

import random
import socket

_CHOICE = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """That many different ports on 127.0.0.1 that nobody listened on a moment ago."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_CHOICE, len(_CHOICE)):
        if len(found) == count:
            break
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found
