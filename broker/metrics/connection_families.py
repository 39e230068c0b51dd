"""Declares the families of kafka.server's socket-server-metrics: connections, their clients, and their rates.

These MBeans have no name but many attributes. Each metric is one attribute of one of them, under the name that
dashboards expect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.broker.metrics.families import Family, Kind, Reading, gauge, labelled, labels_text
from ottla.broker.network.acceptor import TlsConnection
from ottla.broker.network.recent import Recent

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View
    from ottla.broker.network.acceptor import Acceptor

_PREFIX = "kafka_server_socket_server_metrics_"
_OF_PROCESSOR = "kafka.server:listener=*,networkProcessor=*,type=socket-server-metrics"
_OF_LISTENER = "kafka.server:listener=*,type=socket-server-metrics"
_Values = Iterator[tuple[tuple[object, ...], int]]
"""The values of the labels, and the value."""


def _connections(view: View) -> _Values:
    for number, processor in enumerate(view.socket_server.processors):
        listeners = [acceptor.endpoint.listener_name for acceptor in view.socket_server.acceptors]
        found = Counter(listeners)  # so that a listener without connections is reported, too
        found.update(connection.client.listener_name for connection in processor.connections)
        for listener, count in found.items():
            yield (listener, number), count - listeners.count(listener)


def _software(view: View) -> _Values:
    for number, processor in enumerate(view.socket_server.processors):
        clients = (connection.client for connection in processor.connections)
        yield from Counter(
            (each.client_software_name, each.client_software_version, each.listener_name, number) for each in clients
        ).items()


def _ciphers(view: View) -> _Values:
    for number, processor in enumerate(view.socket_server.processors):
        yield from Counter(
            (each.suite, each.client.listener_name, number, each.protocol)
            for each in processor.connections
            if isinstance(each, TlsConnection)
        ).items()


def _accept_rates(view: View) -> Reading:
    now = view.now()
    for acceptor in view.socket_server.acceptors:
        yield labels_text(("listener",), (acceptor.endpoint.listener_name,)), acceptor.accepts.per_second(now)
    for host, accepts in list(view.socket_server.quotas.ip_accepts.items()):
        yield labels_text(("ip",), (host,)), accepts.per_second(now)


def _by_listener(attribute: str, mbean: str, doc: str, value: Callable[[View, Acceptor], float]) -> Family:
    """A family of the attribute of that name; names that end in `total` are counters."""
    return labelled(
        _PREFIX + attribute,
        Kind.COUNTER if attribute.endswith("_total") else Kind.GAUGE,
        ("listener",),
        mbean,
        doc,
        lambda view: (((acceptor.endpoint.listener_name,), value(view, acceptor)) for acceptor in view.socket_server.acceptors),
    )


def _authentication(attribute: str, doc: str) -> Family:
    def value(view: View, acceptor: Acceptor) -> float:
        counted: int | Recent = getattr(acceptor.authentications, attribute)
        return counted.per_second(view.now()) if isinstance(counted, Recent) else counted

    return _by_listener(attribute, _OF_PROCESSOR, doc, value)


_PER_SECOND = "The same per second, over the last ten to twenty seconds."

CONNECTION_FAMILIES: tuple[Family, ...] = (
    _authentication(
        "successful_authentication_total",
        "Connections whose client has authenticated: by SASL, or on an SSL listener by the TLS handshake.",
    ),
    _authentication("successful_authentication_rate", _PER_SECOND),
    _authentication("successful_authentication_no_reauth_total", "Those whose client cannot authenticate again (KIP-368)."),
    _authentication("failed_authentication_total", "Connections whose client failed to authenticate, also by a failed TLS handshake."),
    _authentication("failed_authentication_rate", _PER_SECOND),
    _authentication("successful_reauthentication_total", "Times that a client authenticated again on its connection."),
    _authentication("successful_reauthentication_rate", _PER_SECOND),
    _authentication("failed_reauthentication_total", "Times that a client failed to authenticate again."),
    _authentication("failed_reauthentication_rate", _PER_SECOND),
    _by_listener(
        "reauthentication_latency_avg",
        _OF_PROCESSOR,
        "Average time that clients took to authenticate again, in milliseconds, over the last seconds.",
        lambda view, acceptor: acceptor.authentications.successful_reauthentication_rate.average(view.now()),
    ),
    _authentication(
        "expired_connections_killed_count",
        "Connections that were closed because the client did not authenticate again in time.",
    ),
    labelled(
        _PREFIX + "connections_cipher",
        Kind.GAUGE,
        ("cipher", "listener", "networkProcessor", "protocol"),
        "kafka.server:cipher=*,listener=*,networkProcessor=*,protocol=*,type=socket-server-metrics",
        "Connections over TLS, by cipher suite and version.",
        _ciphers,
    ),
    labelled(
        _PREFIX + "connection_count",
        Kind.GAUGE,
        ("listener", "networkProcessor"),
        _OF_PROCESSOR,
        "Open connections. Of the other attributes of this MBean only the following two and those of authentication exist.",
        _connections,
    ),
    _by_listener("connection_creation_total", _OF_PROCESSOR, "Connections that were accepted.", lambda _, acceptor: acceptor.accepted),
    _by_listener(
        "connection_close_total",
        _OF_PROCESSOR,
        "Connections that are closed.",
        lambda view, acceptor: acceptor.accepted - view.socket_server.quotas.count(acceptor.endpoint.listener_name),
    ),
    labelled(
        _PREFIX + "connections_software",
        Kind.GAUGE,
        ("clientSoftwareName", "clientSoftwareVersion", "listener", "networkProcessor"),
        "kafka.server:clientSoftwareName=*,clientSoftwareVersion=*,listener=*,networkProcessor=*,type=socket-server-metrics",
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
        _OF_LISTENER,
        "Average delay of accepting by max.connection.creation.rate, in milliseconds, over the last seconds and delayed accepts only.",
        lambda view, acceptor: acceptor.throttles.average(view.now()),
    ),
    _by_listener(
        "ip_connection_accept_throttle_time",
        _OF_LISTENER,
        "Average delay in milliseconds before connections were closed that exceeded the quota of their address, over the last seconds.",
        lambda view, acceptor: acceptor.ip_throttles.average(view.now()),
    ),
    gauge(
        _PREFIX + "broker_connection_accept_rate",
        "kafka.server:type=socket-server-metrics",
        "Connections accepted per second by all listeners. Its other attributes concern a memory pool, which does not exist here.",
        lambda view: sum(acceptor.accepts.per_second(view.now()) for acceptor in view.socket_server.acceptors),
    ),
)
