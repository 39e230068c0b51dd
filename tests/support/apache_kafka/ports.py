"""Finds free TCP ports for servers whose port must be known before they start.

Apache Kafka's advertised address must stay the same over a restart, and ZooKeeper refuses `clientPort=0`, so a port is chosen here, below
the kernel's range for outgoing connections. Between choosing and listening only another caller of this module can take the port; the caller
that starts a server chooses again then.
"""

from broker.supervisor.layout import free_ports

__all__ = ["free_ports"]
