"""Free TCP ports for servers that must be told their port before they start.

Apache Kafka's advertised address must stay the same over a restart, and ZooKeeper refuses `clientPort=0`, so a port is chosen here. It is
taken from below the range the kernel hands to outgoing connections: between choosing and listening nothing but another chooser can take it,
and whoever starts a server chooses again when the port was lost.
"""

from broker.supervisor.layout import free_ports

__all__ = ["free_ports"]
