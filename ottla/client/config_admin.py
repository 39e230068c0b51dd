"""Describes and changes configurations of topics, brokers and broker loggers."""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.client.cluster import Cluster, UnknownTopic
from ottla.client.connection import AnyResponse
from ottla.client.errors import check
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.schema.message import Message


class ConfigResourceType(IntEnum):
    """Kafka's numbers of resource types."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """The kind of a change; append and subtract are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


SOURCES = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
DYNAMIC = frozenset({1, 2, 3, 6, 7, 8})
"""Sources of values that were set at run time."""


class Change(NamedTuple):
    """The change of one key of a resource."""

    name: str
    operation: ConfigOperation
    value: str | None


def describe_configs(
    cluster: Cluster, kind: ConfigResourceType, name: str, *, synonyms: bool = False, documentation: bool = False
) -> list[DescribeConfigsResourceResult]:
    """All keys of a resource, by name. The name of a broker is its id, or empty for the cluster's default. Raises
    Refused."""
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )

    def attempt() -> list[DescribeConfigsResourceResult]:
        (result,) = _ask(cluster, kind, name, request, DescribeConfigsResponse).results
        _check(kind, name, result.error_code, result.error_message)
        return sorted(result.configs, key=lambda config: config.name)

    return cluster.until_done(attempt)


def alter_configs(cluster: Cluster, kind: ConfigResourceType, name: str, changes: Sequence[Change], *, validate_only: bool = False) -> None:
    """Change keys of a resource, all or none. Raises Refused."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=change.name, config_operation=change.operation, value=change.value) for change in changes],
            )
        ],
        validate_only=validate_only,
    )

    def attempt() -> None:
        (result,) = _ask(cluster, kind, name, request, IncrementalAlterConfigsResponse).responses
        _check(kind, name, result.error_code, result.error_message)

    cluster.until_done(attempt)


def _ask(cluster: Cluster, kind: ConfigResourceType, name: str, request: Message, response: type[AnyResponse]) -> AnyResponse:
    """Sends requests about one broker to that broker."""
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and name:
        return cluster.ask_broker(int(name), request, response)
    return cluster.ask(cluster.any_connection, request, response)


def _check(kind: ConfigResourceType, name: str, code: int, message: str | None) -> None:
    if kind is ConfigResourceType.TOPIC and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopic(name)
    check(_what(kind, name), code, message)


def _what(kind: ConfigResourceType, name: str) -> str:
    return f"{kind.name.lower().replace('_', ' ')} {name or '(default of all)'}"
