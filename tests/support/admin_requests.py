"""Requests of an administrator in a few words, and what of their answers a test looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig as ConfigChange
from ottla.protocol.messages.incremental_alter_configs import AlterConfigsResource as ChangedResource
from ottla.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.uuid import ZERO_UUID
from tests.support.wire_client import WireClient

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Said = tuple[str, str | None]
"""Name of an error code, and the text."""


def said(result: Any) -> Said:
    return ErrorCode.of(result.error_code).name, result.error_message


OK: Said = ("NONE", None)


def a_topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assignments: Mapping[int, list[int]] | None = None,
    configs: Mapping[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else factor,
        assignments=[CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in (assignments or {}).items()],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(
    client: WireClient, *topics: CreatableTopic, version: int = 7, timeout_ms: int = 10_000, validate_only: bool = False
) -> list[Any]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)
    return list(client.ask(request, version).topics)


def delete(client: WireClient, *topics: str | bytes, version: int = 6, timeout_ms: int = 10_000) -> list[Any]:
    """By name, or by id."""
    request = DeleteTopicsRequest(timeout_ms=timeout_ms)
    if version < 6:
        request.topic_names = [topic for topic in topics if isinstance(topic, str)]
    else:
        request.topics = [
            DeleteTopicState(name=topic, topic_id=ZERO_UUID) if isinstance(topic, str) else DeleteTopicState(name=None, topic_id=topic)
            for topic in topics
        ]
    return list(client.ask(request, version).responses)


def grow(client: WireClient, topic: str, count: int, assignments: Sequence[list[int]] | None = None, **options: Any) -> Said:
    asked = CreatePartitionsTopic(
        name=topic,
        count=count,
        assignments=None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
    )
    request = CreatePartitionsRequest(topics=[asked], timeout_ms=10_000, validate_only=False)
    for name, value in options.items():
        setattr(request, name, value)
    (result,) = client.ask(request, 3).results
    return said(result)


def describe(client: WireClient, kind: int, name: str, keys: list[str] | None = None, version: int = 4) -> Any:
    """The result of one resource."""
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)],
        include_synonyms=version >= 1,
        include_documentation=version >= 3,
    )
    (result,) = client.ask(request, version).results
    return result


def entry(client: WireClient, kind: int, name: str, key: str) -> DescribeConfigsResourceResult:
    (found,) = describe(client, kind, name, [key]).configs
    assert isinstance(found, DescribeConfigsResourceResult)
    return found


def value(client: WireClient, kind: int, name: str, key: str) -> str | None:
    return entry(client, kind, name, key).value


def alter(client: WireClient, kind: int, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False) -> Said:
    """AlterConfigs: these and no others."""
    resource = AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[AlterableConfig(name=key, value=text) for key, text in configs.items()]
    )
    (result,) = client.ask(AlterConfigsRequest(resources=[resource], validate_only=validate_only), 2).responses
    return said(result)


def change(client: WireClient, kind: int, name: str, *ops: tuple[str, int, str | None], validate_only: bool = False) -> Said:
    """IncrementalAlterConfigs: (key, operation, value) each."""
    resource = ChangedResource(
        resource_type=kind,
        resource_name=name,
        configs=[ConfigChange(name=key, config_operation=op, value=text) for key, op, text in ops],
    )
    (result,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), 1).responses
    return said(result)
