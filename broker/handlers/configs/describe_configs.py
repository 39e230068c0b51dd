"""Handles DescribeConfigs (api 32), versions 0-4: KIP-133; sources and synonyms from 1 (KIP-226), types and documentation from 3 (KIP-569).

Resources: topics, this broker, the dynamic defaults of all brokers (an empty name), the loggers of this broker (KIP-412). A cluster of its
own, or with a finalized feature, also has groups and client metrics (KIP-714). Entries are sorted by name. In version 0 is_default is false
for every entry, as in Apache Kafka 3.9.
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.broker.configuration.dynamic_config import TOPICS_AT_ONCE
from ottla.broker.configuration.loggers import describe_loggers
from ottla.broker.configuration.resource_configs import CLIENT_METRICS, GROUPS
from ottla.broker.handlers.configs.config_resources import MAX_ENTRIES, REFUSALS, ConfigResourceType, known_kinds, refusal
from ottla.broker.request.context import RequestContext
from ottla.broker.request.repeats import Repeats
from ottla.config.resources import describe_client_metrics, describe_group
from ottla.config.schema.describe import ConfigEntry
from ottla.config.schema.types import java_int
from ottla.config.topic import TopicConfig
from ottla.controller.errors import InvalidAdminRequest, StoreError
from ottla.controller.znodes.layout import sanitize
from ottla.controller.znodes.pauses import slices
from ottla.controller.znodes.topic_names import validate_topic_name
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

Overrides = dict[str, str] | StoreError | MalformedZNode


async def handle_describe_configs(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Describe each resource. If any resource has an unknown type, the whole request is refused."""
    known = known_kinds(context.broker)
    if not all(await each(request.resources, lambda resource: resource.resource_type in known)):
        code = ErrorCode.INVALID_REQUEST
        results = each(request.resources, lambda resource: _result(resource, code, code.message))
        return DescribeConfigsResponse(results=await results)
    response = DescribeConfigsResponse()
    refused = []
    repeats = Repeats(context)
    for some in slices(request.resources, TOPICS_AT_ONCE):
        allowed = []
        for resource in some:
            await pause()
            denied = _denial(resource, context)
            if denied is None and repeats.are_too_many((resource.resource_type, resource.resource_name)):
                denied = ErrorCode.INVALID_REQUEST
            if denied is not None:
                refused.append(_result(resource, denied, denied.message))
            else:
                allowed.append(resource)
        overrides = await _overrides(allowed, context)
        for resource in allowed:
            await pause()
            response.results.append(await _describe(resource, request, overrides, context))
    response.results += refused
    return response


async def _overrides(resources: Iterable[DescribeConfigsResource], context: RequestContext) -> Mapping[str, Overrides]:
    """Reads the overrides of the topics among the resources in one round trip; has an error for each topic where that fails."""
    known = context.broker.metadata.topics
    is_topic = ConfigResourceType.TOPIC
    topics = {each.resource_name for each in resources if each.resource_type == is_topic and each.resource_name in known}
    try:
        return await context.broker.administration.dynamic_config.overrides_of_topics(topics)
    except StoreError as error:
        return dict.fromkeys(topics, error)


async def _describe(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, overrides: Mapping[str, Overrides], context: RequestContext
) -> DescribeConfigsResult:
    try:
        entries = await _entries(resource, resource.configuration_keys or None, overrides, context)
    except REFUSALS as error:
        return _result(resource, *refusal(error))
    if entries is None:
        return _result(resource, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    result = _result(resource, ErrorCode.NONE, "")
    is_logger = resource.resource_type == ConfigResourceType.BROKER_LOGGER
    result.configs = [_wire_entry(entry, request, is_logger=is_logger) for entry in entries]
    return result


async def _entries(
    resource: DescribeConfigsResource, keys: Sequence[str] | None, overrides: Mapping[str, Overrides], context: RequestContext
) -> list[ConfigEntry] | None:
    """The entries, or None for a topic that this broker does not know. Raises REFUSALS."""
    if keys is not None and len(keys) > MAX_ENTRIES:
        raise InvalidAdminRequest(f"{len(keys)} configurations of one resource; at most {MAX_ENTRIES} can be described at once.")
    broker, name = context.broker, resource.resource_name
    if resource.resource_type == ConfigResourceType.TOPIC:
        validate_topic_name(name)
        found = overrides.get(name)
        if isinstance(found, Exception):
            raise found
        return None if found is None else TopicConfig(found, broker.config).describe(keys)
    if resource.resource_type == ConfigResourceType.BROKER:
        if not name:
            return broker.config.describe_default(keys)
        if _broker_id(name) != broker.broker_id:
            raise InvalidAdminRequest(f"Unexpected broker id, expected {broker.broker_id} or empty string, but received {name}")
        return broker.config.describe(keys)
    if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        if not name:
            raise InvalidAdminRequest("Broker id must not be empty")
        if _broker_id(name) != broker.broker_id:
            raise InvalidAdminRequest(f"Unexpected broker id, expected {broker.broker_id} but received {name}")
        return describe_loggers(keys)
    is_group = resource.resource_type == ConfigResourceType.GROUP
    if not name:
        raise InvalidAdminRequest(f"{'Group' if is_group else 'Client metrics subscription'} name must not be empty")
    if broker.listed.is_beyond_3_9:
        stored = await broker.administration.config_admin.read(GROUPS if is_group else CLIENT_METRICS, sanitize(name))
        return describe_group(stored, broker.config, keys) if is_group else describe_client_metrics(stored, keys)
    raise InvalidAdminRequest("Config type client-metrics is only supported on KRaft clusters")


def _broker_id(name: str) -> int:
    try:
        return java_int(name)
    except ValueError:
        raise InvalidAdminRequest(f"Broker id must be an integer, but it is: {name}") from None


def _denial(resource: DescribeConfigsResource, context: RequestContext) -> ErrorCode | None:
    if resource.resource_type == ConfigResourceType.TOPIC:
        allowed = context.is_authorized(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, resource.resource_name)
        return None if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if resource.resource_type == ConfigResourceType.GROUP:
        allowed = context.is_authorized(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, resource.resource_name)
        return None if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None if context.is_authorized(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _result(resource: DescribeConfigsResource, code: ErrorCode, message: str | None) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code, error_message=message, resource_type=resource.resource_type, resource_name=resource.resource_name
    )


def _wire_entry(entry: ConfigEntry, request: DescribeConfigsRequest, *, is_logger: bool) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
    )
    if not is_logger:
        result.config_type = entry.kind
        result.documentation = entry.documentation if request.include_documentation else None
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source) for synonym in entry.synonyms
        ]
    return result
