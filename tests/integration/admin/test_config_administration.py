"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs over the wire: every answer here is the one that Apache Kafka 3.9.1 gave."""

from collections.abc import Iterator

import pytest

from ottla.config.keys.network import NUM_IO_THREADS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig as ConfigChange
from ottla.protocol.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.support.admin_requests import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    OK,
    SET,
    SUBTRACT,
    TOPIC,
    a_topic,
    alter,
    change,
    create,
    delete,
    describe,
    entry,
    said,
    value,
)
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker
from tests.support.wire_client import WireClient, a_wire_client

OF_TOPIC = "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): "


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    """With a topic `t` that has no overrides, a broker and a cluster without dynamic configuration."""
    with a_wire_client(broker.port) as connected:
        create(connected, a_topic("t"))
        for kind, name in ((TOPIC, "t"), (BROKER, "0"), (BROKER, "")):
            assert alter(connected, kind, name, {}) == OK
        yield connected


def config_in_force(broker: InProcessBroker, topic: str) -> dict[str, str]:
    (log,) = broker.run(lambda: [log for log in broker.services.data.log_manager.all_logs() if log.topic_partition.topic == topic])
    return {entry.name: str(entry.value) for entry in log.config.describe()}


def overrides(broker: InProcessBroker, topic: str) -> dict[str, str]:
    """Those that the broker knows."""
    return dict(broker.run(lambda: broker.services.administration.dynamic_config.topic_config_of(topic)).overrides)


def test_a_malformed_configuration_fails_no_other_resource(client: WireClient, broker: InProcessBroker) -> None:
    create(client, a_topic("edited"))
    broker.run(broker.services.administration.store.set, "/config/topics/edited", b"{")
    names = ("edited", "t")
    asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in names])
    assert [each.error_code for each in client.ask(asked, 4).results] == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    configs = [ConfigChange(name="retention.ms", config_operation=SET, value="5")]
    resources = [AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs) for name in names]
    answer = client.ask(IncrementalAlterConfigsRequest(resources=resources), 1)
    assert [each.error_code for each in answer.responses] == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    assert value(client, TOPIC, "t", "retention.ms") == "5"


# Topics


def test_the_overrides_of_a_deleted_topic_are_forgotten_and_one_of_that_name_has_its_own(
    client: WireClient, broker: InProcessBroker
) -> None:
    create(client, a_topic("short-lived", configs={"segment.bytes": "5000"}))
    assert overrides(broker, "short-lived") == {"segment.bytes": "5000"}
    delete(client, "short-lived")
    assert eventually(lambda: not overrides(broker, "short-lived"))
    again = a_topic("short-lived", configs={"retention.ms": "9"})
    assert eventually(lambda: said(create(client, again)[0]) == OK)  # the controller has to finish the deletion
    assert overrides(broker, "short-lived") == {"retention.ms": "9"}


def test_an_override_is_shown_with_where_it_comes_from_and_reaches_the_log(client: WireClient, broker: InProcessBroker) -> None:
    assert change(client, TOPIC, "t", ("segment.bytes", SET, "5000")) == OK
    shown = entry(client, TOPIC, "t", "segment.bytes")
    assert (shown.value, shown.config_source, shown.config_type, shown.read_only) == ("5000", 1, 3, False)
    synonyms = [(each.name, each.value, each.source) for each in shown.synonyms]
    assert synonyms == [("segment.bytes", "5000", 1), ("log.segment.bytes", "1073741824", 5)]
    assert shown.documentation
    eventually(lambda: config_in_force(broker, "t")["segment.bytes"] == "5000")


def test_lists_are_appended_to_and_subtracted_from(client: WireClient) -> None:
    assert change(client, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == OK
    assert value(client, TOPIC, "t", "cleanup.policy") == "delete,compact"
    assert change(client, TOPIC, "t", ("cleanup.policy", APPEND, "compact,delete")) == OK
    assert value(client, TOPIC, "t", "cleanup.policy") == "delete,compact"
    assert change(client, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == OK
    assert value(client, TOPIC, "t", "cleanup.policy") == "compact"
    assert change(client, TOPIC, "t", ("cleanup.policy", DELETE, None)) == OK
    assert entry(client, TOPIC, "t", "cleanup.policy").config_source == 5


def test_alter_configs_replaces_all_overrides(client: WireClient) -> None:
    assert alter(client, TOPIC, "t", {"retention.ms": "7", "segment.ms": "100"}) == OK
    assert alter(client, TOPIC, "t", {"segment.ms": "200"}) == OK
    assert value(client, TOPIC, "t", "segment.ms") == "200"
    assert entry(client, TOPIC, "t", "retention.ms").config_source == 5


def test_a_dry_run_changes_nothing(client: WireClient) -> None:
    assert change(client, TOPIC, "t", ("retention.ms", SET, "888"), validate_only=True) == OK
    assert alter(client, TOPIC, "t", {"retention.ms": "888"}, validate_only=True) == OK
    assert entry(client, TOPIC, "t", "retention.ms").config_source == 5


@pytest.mark.parametrize(
    ("op", "answer"),
    [
        (
            ("segment.bytes", SET, "-1"),
            ("INVALID_CONFIG", f"{OF_TOPIC}Invalid value -1 for configuration segment.bytes: Value must be at least 14"),
        ),
        (("foo", SET, "5"), ("INVALID_CONFIG", "Unknown topic config name: foo")),
        (("foo", DELETE, None), OK),
        (("foo", APPEND, "5"), ("UNKNOWN_SERVER_ERROR", None)),
        (("retention.ms", APPEND, "5"), ("INVALID_CONFIG", "Config value append is not allowed for config key: retention.ms")),
        (("retention.ms", SUBTRACT, "5"), ("INVALID_CONFIG", "Config value subtract is not allowed for config key: retention.ms")),
        (("retention.ms", SET, None), ("INVALID_REQUEST", "Null value not supported for : retention.ms")),
        (("retention.ms", 9, "1"), ("UNKNOWN_SERVER_ERROR", None)),
    ],
)
def test_a_change_that_cannot_be_is_refused_with_apache_kafkas_words(
    client: WireClient, op: tuple[str, int, str | None], answer: tuple[str, str | None]
) -> None:
    assert change(client, TOPIC, "t", op) == answer


@pytest.mark.parametrize(
    ("kind", "name", "answer"),
    [
        (TOPIC, "nope", ("UNKNOWN_TOPIC_OR_PARTITION", "The topic 'nope' does not exist.")),
        (TOPIC, "", ("INVALID_REQUEST", "Default topic resources are not allowed.")),
        (1, "x", ("INVALID_REQUEST", "Unknown resource type 1")),
        (BROKER, "5", ("INVALID_REQUEST", "Unexpected broker id, expected 0, but received 5")),
        (BROKER, "x", ("INVALID_REQUEST", "Node id must be an integer, but it is: x")),
    ],
)
def test_resources_that_cannot_be_changed_are_refused_by_both_requests(
    client: WireClient, kind: int, name: str, answer: tuple[str, str]
) -> None:
    assert change(client, kind, name, ("retention.ms", SET, "1")) == answer
    assert alter(client, kind, name, {"retention.ms": "1"}) == answer


def test_a_key_that_is_named_twice_is_refused(client: WireClient) -> None:
    ops = [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]
    assert change(client, TOPIC, "t", *ops) == ("INVALID_REQUEST", "Error due to duplicate config keys")


def test_a_resource_that_is_named_twice_is_refused_and_others_are_changed(client: WireClient) -> None:
    create(client, a_topic("u"))
    resources = [AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[]) for name in ("t", "t", "u")]
    responses = client.ask(IncrementalAlterConfigsRequest(resources=resources, validate_only=False), 1).responses
    once = ("INVALID_REQUEST", "Each resource must appear at most once.")
    assert [said(each) for each in responses] == [once, once, OK]


# The broker, and all brokers


def test_a_change_of_this_broker_is_in_force_when_it_is_answered(client: WireClient, broker: InProcessBroker) -> None:
    assert change(client, BROKER, "0", ("num.io.threads", SET, "10")) == OK
    shown = entry(client, BROKER, "0", "num.io.threads")
    assert (shown.value, shown.config_source, shown.read_only) == ("10", 2, False)
    assert [(each.value, each.source) for each in shown.synonyms] == [("10", 2), ("8", 5)]
    slots = broker.run(lambda: (broker.config[NUM_IO_THREADS], broker.broker.socket_server.request_channel.slots))
    assert slots == (10, 10)


def test_the_broker_wins_over_the_default_of_all_brokers(client: WireClient) -> None:
    assert change(client, BROKER, "", ("log.segment.bytes", SET, "5000000"), ("log.cleanup.policy", APPEND, "compact")) == OK
    assert change(client, BROKER, "0", ("log.segment.bytes", SET, "6000000")) == OK
    assert [(each.name, each.value, each.config_source) for each in describe(client, BROKER, "").configs] == [
        ("log.cleanup.policy", "delete,compact", 3),
        ("log.segment.bytes", "5000000", 3),
    ]
    synonyms = [(each.name, each.value, each.source) for each in entry(client, TOPIC, "t", "segment.bytes").synonyms]
    assert synonyms == [
        ("log.segment.bytes", "6000000", 2),
        ("log.segment.bytes", "5000000", 3),
        ("log.segment.bytes", "1073741824", 5),
    ]


def test_a_default_of_the_broker_reaches_every_log_without_an_override_of_its_own(client: WireClient, broker: InProcessBroker) -> None:
    create(client, a_topic("own", configs={"retention.ms": "1"}))
    assert change(client, BROKER, "0", ("log.retention.ms", SET, "99999")) == OK
    assert config_in_force(broker, "t")["retention.ms"] == "99999"
    assert config_in_force(broker, "own")["retention.ms"] == "1"
    assert change(client, BROKER, "0", ("log.retention.ms", DELETE, None)) == OK
    assert config_in_force(broker, "t")["retention.ms"] == "604800000"


@pytest.mark.parametrize(
    ("name", "op", "answer"),
    [
        ("0", ("broker.rack", SET, "x"), ("INVALID_REQUEST", "Cannot update these configs dynamically: Set(broker.rack)")),
        (
            "0",
            ("num.io.threads", SET, "100"),
            (
                "INVALID_REQUEST",
                "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for "
                "num.io.threads=100, value should not be greater than double the current value 8 for configuration "
                "Invalid dynamic configuration",
            ),
        ),
        (
            "0",
            ("num.io.threads", SET, "x"),
            ("INVALID_REQUEST", "Invalid value x for configuration num.io.threads: Not a number of type INT"),
        ),
        (
            "",
            ("listeners", SET, "PLAINTEXT://:1"),
            ("INVALID_REQUEST", "Cannot update these configs at default cluster level, broker id must be specified: Set(listeners)"),
        ),
        ("0", ("foo.bar", SET, "x"), OK),
        ("0", ("foo.bar", APPEND, "x"), ("UNKNOWN_SERVER_ERROR", None)),
        ("0", ("num.io.threads", APPEND, "3"), ("INVALID_CONFIG", "Config value append is not allowed for config key: num.io.threads")),
        ("0", ("num.io.threads", 9, "3"), ("INVALID_REQUEST", "Unknown operations type 9")),
        (
            "0",
            ("listener.name.x.ssl.keystore.password", SET, "pw"),
            (
                "INVALID_CONFIG",
                "Invalid config value for resource ConfigResource(type=BROKER, name='0'): Password encoder secret not configured",
            ),
        ),
    ],
)
def test_changes_of_brokers_are_refused_with_apache_kafkas_words(
    client: WireClient, name: str, op: tuple[str, int, str | None], answer: tuple[str, str | None]
) -> None:
    assert change(client, BROKER, name, op) == answer


# DescribeConfigs


@pytest.mark.parametrize(
    ("kind", "name", "answer"),
    [
        (TOPIC, "nope", ("UNKNOWN_TOPIC_OR_PARTITION", "")),
        (TOPIC, "", ("INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the empty string is not allowed")),
        (BROKER, "9", ("INVALID_REQUEST", "Unexpected broker id, expected 0 or empty string, but received 9")),
        (BROKER, "x", ("INVALID_REQUEST", "Broker id must be an integer, but it is: x")),
        (BROKER_LOGGER, "", ("INVALID_REQUEST", "Broker id must not be empty")),
        (BROKER_LOGGER, "9", ("INVALID_REQUEST", "Unexpected broker id, expected 0 but received 9")),
        (CLIENT_METRICS, "", ("INVALID_REQUEST", "Client metrics subscription name must not be empty")),
        (1, "0", ("INVALID_REQUEST", ErrorCode.INVALID_REQUEST.message)),
    ],
)
def test_resources_that_cannot_be_described_are_refused(client: WireClient, kind: int, name: str, answer: tuple[str, str]) -> None:
    assert said(describe(client, kind, name)) == answer


def test_a_kind_of_resource_that_nobody_knows_spoils_the_whole_request(client: WireClient) -> None:
    resources = [DescribeConfigsResource(resource_type=kind, resource_name="t", configuration_keys=None) for kind in (TOPIC, 1)]
    results = client.ask(DescribeConfigsRequest(resources=resources), 4).results
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2


def test_only_the_asked_keys_are_described_and_an_empty_list_asks_for_all(client: WireClient) -> None:
    assert [each.name for each in describe(client, TOPIC, "t", ["segment.ms", "nope", "retention.ms"]).configs] == [
        "retention.ms",
        "segment.ms",
    ]
    assert len(describe(client, TOPIC, "t", []).configs) == len(describe(client, TOPIC, "t").configs) == 36


@pytest.mark.parametrize("version", range(5))
def test_every_version_describes(client: WireClient, version: int) -> None:
    (shown,) = describe(client, TOPIC, "t", ["segment.bytes"], version).configs
    assert (shown.value, shown.is_default) == ("1073741824", False)
    assert shown.config_source == (5 if version >= 1 else -1)
    assert bool(shown.synonyms) == (version >= 1)
    assert bool(shown.documentation) == (version >= 3)


def test_secrets_are_not_shown(client: WireClient) -> None:
    shown = entry(client, BROKER, "0", "ssl.keystore.password")
    assert (shown.value, shown.is_sensitive, shown.config_type) == (None, True, 9)


# Loggers


def test_a_logger_takes_a_level_and_gives_it_back(client: WireClient) -> None:
    logger = "ottla.broker.handlers.table_of_a_test"
    assert change(client, BROKER_LOGGER, "0", (logger, SET, "DEBUG")) == ("INVALID_CONFIG", f"Logger {logger} does not exist!")
    before = value(client, BROKER_LOGGER, "0", "ottla.broker.server")
    assert change(client, BROKER_LOGGER, "0", ("ottla.broker.server", SET, "TRACE")) == OK
    shown = entry(client, BROKER_LOGGER, "0", "ottla.broker.server")
    assert (shown.value, shown.config_source, shown.config_type, shown.documentation) == ("TRACE", 6, 0, "")
    assert change(client, BROKER_LOGGER, "0", ("ottla.broker.server", DELETE, None)) == OK
    assert value(client, BROKER_LOGGER, "0", "ottla.broker.server") == before


def test_the_level_of_a_package_is_that_of_its_modules(client: WireClient) -> None:
    before = value(client, BROKER_LOGGER, "0", "ottla.storage.manager.log_manager")
    assert change(client, BROKER_LOGGER, "0", ("ottla.storage", SET, "ERROR")) == OK
    assert value(client, BROKER_LOGGER, "0", "ottla.storage.manager.log_manager") == "ERROR"
    assert change(client, BROKER_LOGGER, "0", ("ottla.storage", DELETE, None)) == OK
    assert value(client, BROKER_LOGGER, "0", "ottla.storage.manager.log_manager") == before


def test_a_logger_has_kafkas_name_as_an_alias(client: WireClient) -> None:
    before = value(client, BROKER_LOGGER, "0", "ottla.controller.controller")
    assert change(client, BROKER_LOGGER, "0", ("kafka.controller", SET, "ERROR")) == OK
    assert value(client, BROKER_LOGGER, "0", "kafka.controller") == "ERROR"
    assert value(client, BROKER_LOGGER, "0", "ottla.controller.controller") == "ERROR"
    assert change(client, BROKER_LOGGER, "0", ("kafka.controller", DELETE, None)) == OK
    assert value(client, BROKER_LOGGER, "0", "ottla.controller.controller") == before


@pytest.mark.parametrize(
    ("name", "op", "answer"),
    [
        (
            "0",
            ("root", SET, "debug"),
            (
                "INVALID_CONFIG",
                "Cannot set the log level of root to debug as it is not a supported log level. "
                "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
            ),
        ),
        ("0", ("root", DELETE, None), ("INVALID_REQUEST", "Removing the log level of the root logger is not allowed")),
        ("0", ("root", APPEND, "INFO"), ("INVALID_REQUEST", "APPEND operation is not allowed for the BROKER_LOGGER resource")),
        ("0", ("root", SUBTRACT, "INFO"), ("INVALID_REQUEST", "SUBTRACT operation is not allowed for the BROKER_LOGGER resource")),
        ("0", ("root", 9, "INFO"), ("UNKNOWN_SERVER_ERROR", None)),
        ("5", ("root", SET, "INFO"), ("INVALID_REQUEST", "Unexpected node id. Expected 0, but received 0")),
        ("", ("root", SET, "INFO"), ("INVALID_REQUEST", "Node id must be an integer, but it is: ")),
    ],
)
def test_changes_of_loggers_are_refused_with_apache_kafkas_words(
    client: WireClient, name: str, op: tuple[str, int, str | None], answer: tuple[str, str | None]
) -> None:
    assert change(client, BROKER_LOGGER, name, op) == answer


def test_alter_configs_knows_no_loggers(client: WireClient) -> None:
    assert alter(client, BROKER_LOGGER, "0", {"root": "INFO"}) == ("INVALID_REQUEST", "Unknown resource type 8")
