"""Declares the families of kafka.server's socket-server-metrics: connections, their clients, and their rates.

These MBeans have no name but many attributes. Each metric is one attribute of one of them, under the name that
dashboards expect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.metrics.families import Family, Kind, Reading, gauge, labels_text

if TYPE_CHECKING:
    from broker.metrics.view import View
    from broker.network.acceptor import Acceptor

_PREFIX = "kafka_server_socket_server_metrics_"
_OF_PROCESSOR = "kafka.server:listener=*,networkProcessor=*,type=socket-server-metrics"
_OF_LISTENER = "kafka.server:listener=*,type=socket-server-metrics"
_OF_SOFTWARE = "kafka.server:clientSoftwareName=*,clientSoftwareVersion=*,listener=*,networkProcessor=*,type=socket-server-metrics"
_SOFTWARE_LABELS = ("clientSoftwareName", "clientSoftwareVersion", "listener", "networkProcessor")


def _connections(view: View) -> Reading:
    for number, processor in enumerate(view.socket_server.processors):
        listeners = [acceptor.endpoint.listener_name for acceptor in view.socket_server.acceptors]
        found = Counter(listeners)  # so that a listener without connections is reported, too
        found.update(connection.client.listener_name for connection in processor.connections)
        for listener, count in found.items():
            yield labels_text(("listener", "networkProcessor"), (listener, number)), count - listeners.count(listener)


def _software(view: View) -> Reading:
    for number, processor in enumerate(view.socket_server.processors):
        found = Counter(
            (connection.client.client_software_name, connection.client.client_software_version, connection.client.listener_name)
            for connection in processor.connections
        )
        for labels, count in found.items():
            yield labels_text(_SOFTWARE_LABELS, (*labels, number)), count


def _accepted(view: View) -> Reading:
    for acceptor in view.socket_server.acceptors:
        yield labels_text(("listener",), (acceptor.endpoint.listener_name,)), acceptor.accepted


def _closed(view: View) -> Reading:
    for acceptor in view.socket_server.acceptors:
        name = acceptor.endpoint.listener_name
        yield labels_text(("listener",), (name,)), acceptor.accepted - view.socket_server.quotas.count(name)


def _accept_rates(view: View) -> Reading:
    now = view.now()
    for acceptor in view.socket_server.acceptors:
        yield labels_text(("listener",), (acceptor.endpoint.listener_name,)), acceptor.accepts.per_second(now)
    for host, accepts in list(view.socket_server.quotas.ip_accepts.items()):
        yield labels_text(("ip",), (host,)), accepts.per_second(now)


def _by_listener(attribute: str, doc: str, value: Callable[[Acceptor, float], float]) -> Family:
    def read(view: View) -> Reading:
        now = view.now()
        for acceptor in view.socket_server.acceptors:
            yield labels_text(("listener",), (acceptor.endpoint.listener_name,)), value(acceptor, now)

    return Family(_PREFIX + attribute, Kind.GAUGE, ("listener",), _OF_LISTENER, doc, read)


CONNECTION_FAMILIES: tuple[Family, ...] = (
    Family(
        _PREFIX + "connection_count",
        Kind.GAUGE,
        ("listener", "networkProcessor"),
        _OF_PROCESSOR,
        "Open connections. Of the other attributes of this MBean only the following two exist.",
        _connections,
    ),
    Family(
        _PREFIX + "connection_creation_total",
        Kind.COUNTER,
        ("listener",),
        _OF_PROCESSOR,
        "Connections that were accepted.",
        _accepted,
    ),
    Family(
        _PREFIX + "connection_close_total",
        Kind.COUNTER,
        ("listener",),
        _OF_PROCESSOR,
        "Connections that are closed.",
        _closed,
    ),
    Family(
        _PREFIX + "connections_software",
        Kind.GAUGE,
        _SOFTWARE_LABELS,
        _OF_SOFTWARE,
        "Connections by client software and version, as reported by the client (KIP-511).",
        _software,
    ),
    Family(
        _PREFIX + "connection_accept_rate",
        Kind.GAUGE,
        ("listener", "ip"),
        _OF_LISTENER,
        "Connections accepted per second, over the last ten to twenty seconds: by listener, and by address for addresses with a quota.",
        _accept_rates,
        more_mbeans=("kafka.server:ip=*,type=socket-server-metrics",),
    ),
    _by_listener(
        "connection_accept_throttle_time",
        "Average delay of accepting by max.connection.creation.rate, in milliseconds, over the last seconds and delayed accepts only.",
        lambda acceptor, now: acceptor.throttles.average(now),
    ),
    _by_listener(
        "ip_connection_accept_throttle_time",
        "Average delay in milliseconds before connections were closed that exceeded the quota of their address, over the last seconds.",
        lambda acceptor, now: acceptor.ip_throttles.average(now),
    ),
    gauge(
        _PREFIX + "broker_connection_accept_rate",
        "kafka.server:type=socket-server-metrics",
        "Connections accepted per second by all listeners. Its other attributes concern a memory pool, which does not exist here.",
        lambda view: sum(acceptor.accepts.per_second(view.now()) for acceptor in view.socket_server.acceptors),
    ),
)
