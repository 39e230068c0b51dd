"""Declares the families of kafka.server's socket-server-metrics: connections, their clients, and their rates.

These MBeans have no name but many attributes. Each metric is one attribute of one of them, under the name that
dashboards expect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.metrics.families import Family, Kind, Reading, gauge, labels_text
from ottla.broker.network.acceptor import TlsConnection

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View
    from ottla.broker.network.acceptor import Acceptor
    from ottla.broker.network.authentication_counts import AuthenticationCounts

_PREFIX = "kafka_server_socket_server_metrics_"
_OF_PROCESSOR = "kafka.server:listener=*,networkProcessor=*,type=socket-server-metrics"
_OF_LISTENER = "kafka.server:listener=*,type=socket-server-metrics"
_OF_SOFTWARE = "kafka.server:clientSoftwareName=*,clientSoftwareVersion=*,listener=*,networkProcessor=*,type=socket-server-metrics"
_OF_CIPHER = "kafka.server:cipher=*,listener=*,networkProcessor=*,protocol=*,type=socket-server-metrics"
_CIPHER_LABELS = ("cipher", "listener", "networkProcessor", "protocol")
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


def _ciphers(view: View) -> Reading:
    for number, processor in enumerate(view.socket_server.processors):
        found = Counter(
            (each.suite, each.client.listener_name, number, each.protocol)
            for each in processor.connections
            if isinstance(each, TlsConnection)
        )
        for labels, count in found.items():
            yield labels_text(_CIPHER_LABELS, labels), count


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


def _authentication(attribute: str, doc: str, value: Callable[[AuthenticationCounts, float], float]) -> Family:
    """A family of the attribute of that name; names that end in `total` are counters."""

    def read(view: View) -> Reading:
        now = view.now()
        for acceptor in view.socket_server.acceptors:
            yield labels_text(("listener",), (acceptor.endpoint.listener_name,)), value(acceptor.authentications, now)

    kind = Kind.COUNTER if attribute.endswith("_total") else Kind.GAUGE
    return Family(_PREFIX + attribute, kind, ("listener",), _OF_PROCESSOR, doc, read)


_AUTHENTICATION_FAMILIES: tuple[Family, ...] = (
    _authentication(
        "successful_authentication_total",
        "Connections whose client has authenticated: by SASL, or on an SSL listener by the TLS handshake.",
        lambda counts, _: counts.successful_authentication_total,
    ),
    _authentication(
        "successful_authentication_rate",
        "The same per second, over the last ten to twenty seconds.",
        lambda counts, now: counts.successful_authentication_rate.per_second(now),
    ),
    _authentication(
        "successful_authentication_no_reauth_total",
        "Those whose client cannot authenticate again (KIP-368).",
        lambda counts, _: counts.successful_authentication_no_reauth_total,
    ),
    _authentication(
        "failed_authentication_total",
        "Connections whose client failed to authenticate, also by a failed TLS handshake.",
        lambda counts, _: counts.failed_authentication_total,
    ),
    _authentication(
        "failed_authentication_rate",
        "The same per second, over the last ten to twenty seconds.",
        lambda counts, now: counts.failed_authentication_rate.per_second(now),
    ),
    _authentication(
        "successful_reauthentication_total",
        "Times that a client authenticated again on its connection.",
        lambda counts, _: counts.successful_reauthentication_total,
    ),
    _authentication(
        "successful_reauthentication_rate",
        "The same per second, over the last ten to twenty seconds.",
        lambda counts, now: counts.reauthentication_latency.per_second(now),
    ),
    _authentication(
        "failed_reauthentication_total",
        "Times that a client failed to authenticate again.",
        lambda counts, _: counts.failed_reauthentication_total,
    ),
    _authentication(
        "failed_reauthentication_rate",
        "The same per second, over the last ten to twenty seconds.",
        lambda counts, now: counts.failed_reauthentication_rate.per_second(now),
    ),
    _authentication(
        "reauthentication_latency_avg",
        "Average time that clients took to authenticate again, in milliseconds, over the last seconds.",
        lambda counts, now: counts.reauthentication_latency.average(now),
    ),
    _authentication(
        "expired_connections_killed_count",
        "Connections that were closed because the client did not authenticate again in time.",
        lambda counts, _: counts.expired_connections_killed_count,
    ),
    Family(
        _PREFIX + "connections_cipher",
        Kind.GAUGE,
        _CIPHER_LABELS,
        _OF_CIPHER,
        "Connections over TLS, by cipher suite and version.",
        _ciphers,
    ),
)

CONNECTION_FAMILIES: tuple[Family, ...] = (
    *_AUTHENTICATION_FAMILIES,
    Family(
        _PREFIX + "connection_count",
        Kind.GAUGE,
        ("listener", "networkProcessor"),
        _OF_PROCESSOR,
        "Open connections. Of the other attributes of this MBean only the following two and those of authentication exist.",
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
