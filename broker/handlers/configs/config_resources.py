"""Defines the types of resources with configurations, and the checks before AlterConfigs and IncrementalAlterConfigs change one.

Kafka's ConfigAdminManager.preprocess. The two handlers use it, and DescribeConfigs uses the types.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import Any, Final, Protocol, TypeVar

from ottla.broker.configuration.resource_configs import CLIENT_METRICS, GROUPS
from ottla.broker.request.context import RequestContext
from ottla.broker.request.services import Services
from ottla.config.errors import ConfigError, ResourceConfigError
from ottla.config.resources import validate_client_metrics, validate_group
from ottla.controller.admin.config_admin import OpType
from ottla.controller.errors import ControllerError, InvalidAdminRequest, InvalidTopicConfig, StoreError
from ottla.controller.znodes.layout import sanitize
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.coordination.error_map import api_error
from ottla.coordination.groups.consumer.regexes import full_match
from ottla.pauses import each, how_often, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


class ConfigResourceType(IntEnum):
    """A type of resource that has a configuration; values as in requests."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


ALL_KINDS: Final = frozenset(ConfigResourceType) - {ConfigResourceType.UNKNOWN}
FOLLOWED: Final = ALL_KINDS - {ConfigResourceType.BROKER_LOGGER}
"""The types whose changes reach brokers through the metadata store."""


class AlterableConfig(Protocol):
    """One entry of either request."""

    name: str
    value: str | None


class Op(AlterableConfig, Protocol):
    """One entry of IncrementalAlterConfigs."""

    config_operation: int


class Resource(Protocol):
    """One resource of either request."""

    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[AlterableConfig]:
        """The changes that the request asks for."""


R = TypeVar("R", bound=Resource)
R_contra = TypeVar("R_contra", bound=Resource, contravariant=True)
T = TypeVar("T")
Outcome = tuple[ErrorCode, str | None]

MAX_ENTRIES: Final = 2000
"""Most changes of one resource in a request. There are some hundred keys; all changes of a resource are checked in one turn of the loop."""

ONCE = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")

REFUSALS: Final = (ControllerError, ConfigError, StoreError, MalformedZNode)
"""The errors of one resource or entity. The others in the request do not fail by them."""


def refusal(error: Exception) -> Outcome:
    """The answer for one of REFUSALS. A malformed node is logged, because the answer does not name it."""
    if isinstance(error, MalformedZNode):
        logger.error("a configuration can neither be described nor changed: %s", error)
    return api_error(error)


class Changes(Protocol[R_contra]):
    """Checks and makes the changes of one of the two requests. Both methods raise REFUSALS."""

    validate_only: bool

    def check(self, resource: R_contra) -> None:
        """Checks the request itself, before the client's rights are checked. May depend on nothing that the client may not know."""

    async def change(self, resource: R_contra, *, validate_only: bool) -> None:
        """Changes the resource, or only checks whether that is possible."""


async def change_each(resources: Sequence[R], changes: Changes[R], response: Callable[..., T], context: RequestContext) -> list[T]:
    """Change one resource after the other; returns a `response` for each, with its error or NONE. A resource named twice is refused."""

    def answer(changed: tuple[R, Outcome]) -> T:
        resource, (code, message) = changed
        return response(error_code=code, error_message=message, resource_type=resource.resource_type, resource_name=resource.resource_name)

    outcomes = await _outcomes(resources, changes, context)
    return await each(zip(resources, outcomes, strict=True), answer)


async def _outcomes(resources: Sequence[R], changes: Changes[R], context: RequestContext) -> list[Outcome]:
    times = context.scratch(await how_often((resource.resource_type, resource.resource_name) for resource in resources))
    outcomes: list[Outcome] = context.scratch([])
    for resource in resources:
        await pause()
        if times[resource.resource_type, resource.resource_name] > 1:
            outcomes.append(ONCE)
            continue
        try:
            changes.check(resource)
            # The right is checked before the values, other than in Apache Kafka: their validation reads files and the environment of the
            # broker, and its answer has what it has found.
            denied = _denial(resource, context)
            if denied is None:
                await changes.change(resource, validate_only=changes.validate_only)
            outcomes.append(denied or (ErrorCode.NONE, None))
        except REFUSALS as error:
            outcomes.append(refusal(error))
    if any(resource.resource_type in FOLLOWED for resource in resources):
        # So that the client's next request sees the change.
        await context.broker.administration.dynamic_config.catch_up()
    return outcomes


def _denial(resource: Resource, context: RequestContext) -> Outcome | None:
    """The error for a client that may not change the resource. Raises InvalidAdminRequest for client metrics, as Apache Kafka does."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        if not context.is_authorized(Operation.ALTER_CONFIGS, ResourceType.TOPIC, resource.resource_name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
    elif resource.resource_type == ConfigResourceType.GROUP:
        if not context.is_authorized(Operation.ALTER_CONFIGS, ResourceType.GROUP, resource.resource_name):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED, None
    elif not context.is_authorized(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
        if resource.resource_type == ConfigResourceType.CLIENT_METRICS and not context.broker.listed.is_beyond_3_9:
            raise InvalidAdminRequest(f"Unexpected resource type CLIENT_METRICS for resource {resource.resource_name}")
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
    return None


def check_entries(resource: Resource, *, may_be_null: Callable[[Any], bool] = lambda _: False) -> None:
    """Raises InvalidAdminRequest when a key is named twice or has no value, or when there are too many."""
    if len(resource.configs) > MAX_ENTRIES:
        raise InvalidAdminRequest(f"{len(resource.configs)} configurations of one resource; at most {MAX_ENTRIES} can be changed at once.")
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise InvalidAdminRequest("Error due to duplicate config keys")
    without_value = [config.name for config in resource.configs if config.value is None and not may_be_null(config)]
    if without_value:
        raise InvalidAdminRequest(f"Null value not supported for : {', '.join(without_value)}")


def known_kinds(services: Services) -> frozenset[ConfigResourceType]:
    """The types of resources that the cluster has. Apache Kafka 3.9 with ZooKeeper does not know groups."""
    return ALL_KINDS if services.listed.is_beyond_3_9 else ALL_KINDS - {ConfigResourceType.GROUP}


def check_kind(resource: Resource, known: Collection[ConfigResourceType]) -> None:
    """Raises InvalidAdminRequest unless the request supports the resource's type."""
    if resource.resource_type not in known:
        raise InvalidAdminRequest(f"Unknown resource type {resource.resource_type}")


async def change_resource(
    resource: Resource, change: Callable[[dict[str, str]], dict[str, str]], services: Services, *, validate_only: bool
) -> None:
    """Change the configuration of a group or of client metrics. Raises InvalidAdminRequest, ConfigError."""
    is_group = resource.resource_type == ConfigResourceType.GROUP
    if not services.listed.is_beyond_3_9:
        raise InvalidAdminRequest("AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS")
    if not resource.resource_name:
        raise InvalidAdminRequest(f"Default {'group' if is_group else 'client metrics'} resources are not allowed.")

    def checked(current: dict[str, str]) -> dict[str, str]:
        overrides = change(current)
        if is_group:
            validate_group(overrides, services.config)
            return overrides
        try:
            validate_client_metrics(overrides, lambda pattern: full_match(pattern) is not None)
        except ResourceConfigError as error:
            raise InvalidAdminRequest(str(error)) from None
        return overrides

    kind = GROUPS if is_group else CLIENT_METRICS
    name = sanitize(resource.resource_name)
    await services.administration.config_admin.alter_entity_config(kind, name, checked, validate_only=validate_only)


def changed_by(ops: Sequence[Op]) -> Callable[[dict[str, str]], dict[str, str]]:
    """The change of a group or of client metrics by an IncrementalAlterConfigs. None of their keys can be appended to.

    Raises InvalidTopicConfig, InvalidAdminRequest.
    """

    def change(current: dict[str, str]) -> dict[str, str]:
        overrides = dict(current)
        for op in ops:
            if op.config_operation == OpType.DELETE:
                overrides.pop(op.name, None)
            elif op.config_operation == OpType.SET:
                overrides[op.name] = op.value or ""
            elif op.config_operation in (OpType.APPEND, OpType.SUBTRACT):
                raise InvalidTopicConfig(f"Can't {OpType(op.config_operation).name} to key {op.name} because its type is not LIST.")
            else:
                raise InvalidAdminRequest(f"Unknown operations type {op.config_operation}")
        return overrides

    return change
