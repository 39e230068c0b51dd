"""Listeners, and the lines that refuse them: the texts of Apache Kafka 3.9.1, which was given every one of these."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.listeners import EndPoint, SecurityProtocol, parse_endpoints, parse_protocol_map

CLUSTER = {"zookeeper.connect": "127.0.0.1:2181"}
TWO = {"listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_SSL", "inter.broker.listener.name": "IN"}

REFUSED = [
    (
        {"listeners": "PLAINTEXT:/host:1"},
        "Error creating broker listeners from 'PLAINTEXT:/host:1': Unable to parse PLAINTEXT:/host:1 to a broker endpoint",
    ),
    (
        {"listeners": "PLAINTEXT://host"},
        "Error creating broker listeners from 'PLAINTEXT://host': Unable to parse PLAINTEXT://host to a broker endpoint",
    ),
    (
        {"listeners": "PLAINTEXT://ho_st!:1"},
        "Error creating broker listeners from 'PLAINTEXT://ho_st!:1': Unable to parse PLAINTEXT://ho_st!:1 to a broker endpoint",
    ),
    (
        {"listeners": "IN://host:1"},
        "Error creating broker listeners from 'IN://host:1': No security protocol defined for listener IN",
    ),
    (
        {"listeners": "PLAINTEXT://a:1,plaintext://b:2"},
        "requirement failed: Each listener must have a different name, listeners: PLAINTEXT://a:1,plaintext://b:2",
    ),
    (
        TWO | {"listeners": "IN://a:1,OUT://b:1"},
        "requirement failed: Each listener must have a different port, listeners: IN://a:1,OUT://b:1",
    ),
    (
        TWO | {"listeners": "IN://127.0.0.1:1,OUT://127.0.0.2:1"},
        "requirement failed: If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
        "listeners: IN://127.0.0.1:1,OUT://127.0.0.2:1, port: 1",
    ),
    (
        {
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
            "inter.broker.listener.name": "A",
            "listeners": "A://127.0.0.1:1,B://[::1]:1,C://host:1",
        },
        "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
        "listeners: A://127.0.0.1:1,B://[::1]:1,C://host:1, port: 1",
    ),
    (
        {
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
            "inter.broker.listener.name": "A",
            "listeners": "A://127.0.0.1:1,B://[::1]:1,C://127.0.0.2:1",
        },
        "Each listener must have a different port unless exactly one listener has an IPv4 address and the other IPv6 address, "
        "listeners: A://127.0.0.1:1,B://[::1]:1,C://127.0.0.2:1, port: 1",
    ),
    (
        TWO | {"listeners": "IN://127.0.0.1:1,OUT://host:1"},
        "Each listener must have a different port unless exactly one listener has an IPv4 address and the other IPv6 address, "
        "listeners: IN://127.0.0.1:1,OUT://host:1, port: 1",
    ),
    (
        {"listener.security.protocol.map": "PLAINTEXT:TELNET"},
        "Invalid security protocol `TELNET` defined in listener.security.protocol.map",
    ),
    (
        {"listeners": "PLAINTEXT://0.0.0.0:9092"},
        "requirement failed: advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
    ),
    (
        {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "SSL://a:1,PLAINTEXT://a:1"},
        "requirement failed: advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
        "Found SSL,PLAINTEXT. The valid options based on the current configuration are PLAINTEXT",
    ),
    (
        {"listeners": "SSL://a:1"},
        "requirement failed: inter.broker.listener.name must be a listener name defined in advertised.listeners. "
        "The valid options based on currently configured listeners are SSL",
    ),
    (
        {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
        "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
    ),
    (
        {"inter.broker.listener.name": "OTHER"},
        "Listener with name OTHER defined in inter.broker.listener.name not found in listener.security.protocol.map.",
    ),
    (
        {"control.plane.listener.name": "OTHER"},
        "Listener with OTHER defined in control.plane.listener.name not found in listener.security.protocol.map.",
    ),
    (
        {"control.plane.listener.name": "SSL"},
        "requirement failed: control.plane.listener.name must be a listener name defined in advertised.listeners. "
        "The valid options based on currently configured listeners are PLAINTEXT",
    ),
    (
        {"control.plane.listener.name": "PLAINTEXT"},
        "requirement failed: control.plane.listener.name, when defined, should have a different value from the inter broker listener name. "
        "Currently they both have the value ListenerName(PLAINTEXT)",
    ),
    ({"listeners": ""}, "requirement failed: There must be at least one broker advertised listener."),
    (
        {"controller.listener.names": "CONTROLLER"},
        "requirement failed: controller.listener.names must be empty when not running in KRaft mode: [CONTROLLER]",
    ),
]

ACCEPTED = [
    {"listeners": "PLAINTEXT://:0"},
    {"listeners": "plaintext://a:1 , SSL://a:2"},
    TWO | {"listeners": "IN://:0,OUT://:0"},
    TWO | {"listeners": "IN://127.0.0.1:1,OUT://[::1]:1"},
    TWO | {"listeners": "IN://a:1,OUT://a:2", "advertised.listeners": "IN://b:5,OUT://b:5"},
    TWO | {"listeners": "IN://a:1,OUT://a:2", "control.plane.listener.name": "OUT"},
]


@pytest.mark.parametrize(("properties", "line"), REFUSED)
def test_bad_listeners_are_refused_in_kafkas_words(properties: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(CLUSTER | properties)
    assert refused.value.client_message == line


@pytest.mark.parametrize("properties", ACCEPTED)
def test_listeners_that_kafka_accepts_are_accepted(properties: dict[str, str]) -> None:
    BrokerConfig(CLUSTER | properties)


PLAINTEXT = {"PLAINTEXT": SecurityProtocol.PLAINTEXT}


@pytest.mark.parametrize(
    ("text", "host", "port", "connection_string"),
    [
        ("PLAINTEXT://localhost:9092", "localhost", 9092, "PLAINTEXT://localhost:9092"),
        ("plaintext://:9092", "", 9092, "PLAINTEXT://:9092"),
        ("PLAINTEXT://[::1]:9092", "::1", 9092, "PLAINTEXT://[::1]:9092"),
        ("PLAINTEXT://[fe80::1%eth0]:1", "fe80::1%eth0", 1, "PLAINTEXT://[fe80::1%eth0]:1"),
        ("PLAINTEXT://::1:9092", "::1", 9092, "PLAINTEXT://[::1]:9092"),
        ("PLAINTEXT://kafka-0.kafka_svc:0", "kafka-0.kafka_svc", 0, "PLAINTEXT://kafka-0.kafka_svc:0"),
    ],
)
def test_an_endpoint_has_a_host_and_a_port(text: str, host: str, port: int, connection_string: str) -> None:
    (endpoint,) = parse_endpoints(text, PLAINTEXT)
    assert endpoint == EndPoint("PLAINTEXT", host, port, SecurityProtocol.PLAINTEXT)
    assert endpoint.connection_string == connection_string


def test_a_port_that_no_socket_can_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="port out of range:65536"):
        parse_endpoints("PLAINTEXT://:65536", PLAINTEXT)
    with pytest.raises(ConfigError, match="to a broker endpoint"):
        parse_endpoints(f"PLAINTEXT://:{'1' * 5000}", PLAINTEXT)


def test_a_protocol_map_without_colon_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'listener\.security\.protocol\.map': 'PLAINTEXT' is not of the form name:value"):
        parse_protocol_map("A:SSL,PLAINTEXT")


def test_without_advertised_listeners_the_listeners_are_advertised() -> None:
    listeners = BrokerConfig({"listeners": "PLAINTEXT://a:1"}).listeners
    assert listeners.advertised == listeners.listeners


def test_the_control_plane_listener_is_found_whatever_the_case_of_its_name() -> None:
    listeners = BrokerConfig(TWO | {"listeners": "IN://a:1,OUT://a:2", "control.plane.listener.name": "out"}).listeners
    assert listeners.control_plane is not None
    assert listeners.control_plane.listener_name == "OUT"


def test_the_inter_broker_listener_is_that_of_its_protocol_unless_it_is_named() -> None:
    by_protocol = BrokerConfig({"listeners": "SSL://a:1", "security.inter.broker.protocol": "SSL"}).listeners
    named = BrokerConfig(TWO | {"listeners": "IN://a:1,OUT://a:2"}).listeners
    assert (by_protocol.inter_broker_listener_name, by_protocol.inter_broker_security_protocol) == ("SSL", SecurityProtocol.SSL)
    assert (named.inter_broker_listener_name, named.inter_broker_security_protocol) == ("IN", SecurityProtocol.PLAINTEXT)
