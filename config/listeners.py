"""Parses listeners, advertised.listeners and listener.security.protocol.map into endpoints, by Kafka's rules.

`broker_listeners` is the entry point; `BrokerConfig.listeners` holds its result for the effective configuration. An
empty host means every interface, and is kept: the server finds the name to advertise for it.
"""

import ipaddress
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.config.broker_keys import LISTENER_PREFIX
from ottla.config.broker_properties import BrokerProperties
from ottla.config.errors import ConfigConflictError, ConfigError, ConfigValueError
from ottla.config.keys.kraft import CONTROLLER_LISTENER_NAMES
from ottla.config.keys.network import (
    ADVERTISED_LISTENERS,
    CONTROL_PLANE_LISTENER_NAME,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_SECURITY_PROTOCOL_MAP,
    LISTENERS,
    SECURITY_INTER_BROKER_PROTOCOL,
)
from ottla.config.keys.security import PRINCIPAL_BUILDER_CLASS
from ottla.config.schema.types import COMMA

_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]{1,20})")  # Python reads no number of thousands of digits


class SecurityProtocol(IntEnum):
    """The security of a listener, with the ids of the protocol and of the broker's znode."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        """Whether connections begin with a TLS handshake."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        """Whether clients authenticate by SASL before their first request."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class EndPoint(NamedTuple):
    """An address of one listener."""

    listener_name: str
    host: str
    port: int
    security_protocol: SecurityProtocol

    @property
    def connection_string(self) -> str:
        """`NAME://host:port`, with an IPv6 address in brackets; the form of the broker's znode."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


class BrokerListeners(NamedTuple):
    """The listeners of a broker and their security."""

    listeners: tuple[EndPoint, ...]
    advertised: tuple[EndPoint, ...]
    security_protocols: Mapping[str, SecurityProtocol]
    inter_broker_listener_name: str
    inter_broker_security_protocol: SecurityProtocol
    control_plane_listener_name: str | None

    @property
    def control_plane(self) -> EndPoint | None:
        """The listener that only the controller uses, if there is one."""
        return next((each for each in self.listeners if each.listener_name == self.control_plane_listener_name), None)


def broker_listeners(properties: BrokerProperties) -> BrokerListeners:
    """The listeners of `properties`. Raises ConfigError when they contradict each other or cannot be parsed."""
    protocols = parse_protocol_map(properties[LISTENER_SECURITY_PROTOCOL_MAP])
    listeners = parse_endpoints(properties[LISTENERS], protocols)
    advertised = listeners
    if properties.given[ADVERTISED_LISTENERS] is not None:
        advertised = parse_endpoints(properties[ADVERTISED_LISTENERS], protocols, distinct_ports=False)
    inter_broker_name, inter_broker_protocol = _inter_broker(properties, protocols)
    found = BrokerListeners(
        listeners=listeners,
        advertised=advertised,
        security_protocols=protocols,
        inter_broker_listener_name=inter_broker_name,
        inter_broker_security_protocol=inter_broker_protocol,
        control_plane_listener_name=_control_plane_name(properties, protocols),
    )
    _check(properties, found)
    return found


def check_principal_builder(properties: BrokerProperties, listener_name: str) -> None:
    """Raises ConfigValueError if another class than Apache Kafka's own gives the clients of a listener their principals."""
    key = PRINCIPAL_BUILDER_CLASS
    value = properties.for_listener(listener_name)[key]
    if value != key.default:
        prefixed = f"{LISTENER_PREFIX}{listener_name.lower()}.{key.name}"
        raise ConfigValueError(prefixed if prefixed in properties.properties else key.name, value, f"only {key.default} is supported")


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """Listener name to security protocol. Raises ConfigError for a pair without a colon and for an unknown protocol."""
    return {
        name.upper(): _security_protocol(protocol, LISTENER_SECURITY_PROTOCOL_MAP.name)
        for name, protocol in parse_pairs(LISTENER_SECURITY_PROTOCOL_MAP.name, text).items()
    }


def parse_pairs(key_name: str, text: str) -> dict[str, str]:
    """`a:1,b:2` as a mapping; the last colon separates, so that a name may be an IPv6 address. Raises ConfigError."""
    pairs: dict[str, str] = {}
    for pair in COMMA.split(text.rstrip(", ")) if text else ():
        name, colon, value = pair.rpartition(":")
        if not colon:
            raise ConfigError(f"Error parsing configuration property '{key_name}': '{pair}' is not of the form name:value")
        pairs[name.strip()] = value.strip()
    return pairs


def parse_endpoints(text: str, protocols: Mapping[str, SecurityProtocol], *, distinct_ports: bool = True) -> tuple[EndPoint, ...]:
    """The endpoints of a list like `A://host:1,B://:2`.

    Raises ConfigError for an endpoint that cannot be parsed or has no security protocol. Raises ConfigConflictError
    when names or (unless `distinct_ports` is false) ports repeat. Port 0 may repeat: the kernel chooses it.
    """
    endpoints = []
    for entry in filter(None, COMMA.split(text.strip())):
        try:
            endpoints.append(_parse_endpoint(entry, protocols))
        except ConfigError as reason:
            raise ConfigError(f"Error creating broker listeners from '{text}': {reason}") from None
    if len({each.listener_name for each in endpoints}) != len(endpoints):
        raise ConfigConflictError(f"Each listener must have a different name, listeners: {text}")
    if distinct_ports:
        _check_ports(text, endpoints)
    return tuple(endpoints)


def _parse_endpoint(entry: str, protocols: Mapping[str, SecurityProtocol]) -> EndPoint:
    parts = _ENDPOINT.fullmatch(entry)
    if parts is None:
        raise ConfigError(f"Unable to parse {entry} to a broker endpoint")
    name, host, port = parts[1].upper(), parts[2], int(parts[3])
    if not 0 <= port < 1 << 16:
        raise ConfigError(f"port out of range:{port}")
    if name not in protocols:
        raise ConfigError(f"No security protocol defined for listener {name}")
    return EndPoint(name, host, port, protocols[name])


def _check_ports(text: str, endpoints: Sequence[EndPoint]) -> None:
    by_port: dict[int, list[EndPoint]] = defaultdict(list)
    for endpoint in endpoints:
        if endpoint.port != 0:
            by_port[endpoint.port].append(endpoint)
    for port, sharing in by_port.items():
        if len(sharing) == 1:
            continue
        versions = sorted(version for each in sharing if (version := _ip_version(each.host)) is not None)
        if len(sharing) - len(versions) > 1:
            raise ConfigConflictError(f"Each listener must have a different port, listeners: {text}")
        if len(versions) != 2:
            raise ConfigError(
                "Each listener must have a different port unless exactly one listener has an IPv4 address and the other IPv6 address, "
                f"listeners: {text}, port: {port}"
            )
        # An IPv4 and an IPv6 address may share a port, because they are different sockets; the version of a host name
        # is unknown.
        sharing_rule = (
            f"If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, listeners: {text}, port: {port}"
        )
        if versions != [4, 6]:
            raise ConfigConflictError(sharing_rule)
        if len(sharing) > 2:
            raise ConfigError(sharing_rule)


def _ip_version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None


def _security_protocol(name: str, key_name: str) -> SecurityProtocol:
    try:
        return SecurityProtocol[name.upper()]
    except KeyError:
        raise ConfigError(f"Invalid security protocol `{name}` defined in {key_name}") from None


def _inter_broker(properties: BrokerProperties, protocols: Mapping[str, SecurityProtocol]) -> tuple[str, SecurityProtocol]:
    name = properties[INTER_BROKER_LISTENER_NAME]
    if name is None:
        protocol = _security_protocol(properties[SECURITY_INTER_BROKER_PROTOCOL], SECURITY_INTER_BROKER_PROTOCOL.name)
        return protocol.name, protocol
    if properties.has(SECURITY_INTER_BROKER_PROTOCOL):
        raise ConfigError(f"Only one of {INTER_BROKER_LISTENER_NAME.name} and {SECURITY_INTER_BROKER_PROTOCOL.name} should be set.")
    name = name.upper()
    if name not in protocols:
        raise ConfigError(
            f"Listener with name {name} defined in {INTER_BROKER_LISTENER_NAME.name} not found in {LISTENER_SECURITY_PROTOCOL_MAP.name}."
        )
    return name, protocols[name]


def _control_plane_name(properties: BrokerProperties, protocols: Mapping[str, SecurityProtocol]) -> str | None:
    name = properties[CONTROL_PLANE_LISTENER_NAME]
    if name is None:
        return None
    name = name.upper()
    if name not in protocols:
        raise ConfigError(
            f"Listener with {name} defined in {CONTROL_PLANE_LISTENER_NAME.name} not found in {LISTENER_SECURITY_PROTOCOL_MAP.name}."
        )
    return name


def _remedy_for(properties: BrokerProperties, found: BrokerListeners) -> str:
    """The key to set when the listener between brokers does not exist and was never named: its name is that of a protocol then."""
    if properties[INTER_BROKER_LISTENER_NAME] is not None:
        return ""
    protocol = found.inter_broker_security_protocol.name
    return f"{SECURITY_INTER_BROKER_PROTOCOL.name} is {protocol}: add a listener {protocol}, or set one of both keys"


def _check(properties: BrokerProperties, found: BrokerListeners) -> None:
    listener_names = [each.listener_name for each in found.listeners]
    advertised_names = [each.listener_name for each in found.advertised]
    if properties[CONTROLLER_LISTENER_NAMES]:
        raise ConfigConflictError(
            f"{CONTROLLER_LISTENER_NAMES.name} must be empty when not running in KRaft mode: [{properties[CONTROLLER_LISTENER_NAMES]}]"
        )
    if not advertised_names:
        raise ConfigConflictError("There must be at least one broker advertised listener.")
    if found.inter_broker_listener_name not in advertised_names:
        raise ConfigConflictError(
            f"{INTER_BROKER_LISTENER_NAME.name} must be a listener name defined in {ADVERTISED_LISTENERS.name}. "
            f"The valid options based on currently configured listeners are {','.join(advertised_names)}",
            _remedy_for(properties, found),
        )
    if not set(advertised_names) <= set(listener_names):
        raise ConfigConflictError(
            f"{ADVERTISED_LISTENERS.name} listener names must be equal to or a subset of the ones defined in {LISTENERS.name}. "
            f"Found {','.join(advertised_names)}. The valid options based on the current configuration are {','.join(listener_names)}"
        )
    if any(each.host == "0.0.0.0" for each in found.advertised):
        raise ConfigConflictError(
            f"{ADVERTISED_LISTENERS.name} cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
        )
    control_plane = found.control_plane_listener_name
    if control_plane is None:
        return
    if control_plane not in advertised_names:
        raise ConfigConflictError(
            f"{CONTROL_PLANE_LISTENER_NAME.name} must be a listener name defined in {ADVERTISED_LISTENERS.name}. "
            f"The valid options based on currently configured listeners are {','.join(advertised_names)}"
        )
    if control_plane == found.inter_broker_listener_name:
        raise ConfigConflictError(
            f"{CONTROL_PLANE_LISTENER_NAME.name}, when defined, should have a different value from the inter broker listener name. "
            f"Currently they both have the value ListenerName({control_plane})"
        )
