"""Handles IncrementalAlterConfigs (api 44), versions 0-1. KIP-339: sets, deletes, appends to and subtracts from single overrides.

Resources: topics, this broker, all brokers (an empty name), the loggers of this broker (KIP-412), groups, and client metrics (KIP-714).
"""

from collections.abc import Mapping
from typing import Any

from ottla.broker.configuration.loggers import alter_loggers
from ottla.broker.handlers.configs.config_resources import (
    ConfigResourceType,
    change_each,
    change_resource,
    changed_by,
    check_entries,
    check_kind,
    known_kinds,
)
from ottla.broker.request.context import RequestContext
from ottla.broker.request.services import Services
from ottla.config.broker_keys import BROKER_KEYS
from ottla.config.schema.key import Key
from ottla.config.schema.types import java_int
from ottla.config.topic import TOPIC_KEYS
from ottla.controller.admin.config_admin import ConfigOp, OpType, check_is_list, check_topic_named
from ottla.controller.errors import ControllerError, InvalidAdminRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change each resource, or only check whether that is possible."""
    changes = _Changes(context.broker, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=await change_each(request.resources, changes, AlterConfigsResourceResponse, context))


class _Changes:
    """See `Changes`."""

    def __init__(self, services: Services, *, validate_only: bool) -> None:
        self._admin = services.administration.config_admin
        self._services = services
        self._broker_id = services.broker_id
        self._authorizer = services.authorizer
        self.validate_only = validate_only

    def check(self, resource: AlterConfigsResource) -> None:
        check_entries(resource, may_be_null=_is_deletion)
        check_kind(resource, known_kinds(self._services))
        if resource.resource_type == ConfigResourceType.BROKER:
            self._admin.check_broker_name(resource.resource_name)
            for config in resource.configs:
                if config.config_operation not in OpType.__members__.values():
                    raise InvalidAdminRequest(f"Unknown operations type {config.config_operation}")
            _ops(resource, BROKER_KEYS)

    async def change(self, resource: AlterConfigsResource, *, validate_only: bool) -> None:
        name = resource.resource_name
        if resource.resource_type == ConfigResourceType.TOPIC:
            check_topic_named(name)
            await self._admin.alter_topic_configs(name, _ops(resource, TOPIC_KEYS), validate_only=validate_only)
        elif resource.resource_type == ConfigResourceType.BROKER:
            await self._admin.alter_broker_configs(name, _ops(resource, BROKER_KEYS), validate_only=validate_only)
        elif resource.resource_type == ConfigResourceType.BROKER_LOGGER:
            _check_node_id(name, self._broker_id)
            alter_loggers([(op.name, op.value, op.config_operation) for op in resource.configs], validate_only=validate_only)
            self._authorizer.on_log_levels_changed()
        else:
            await change_resource(resource, changed_by(resource.configs), self._services, validate_only=validate_only)


def _is_deletion(config: AlterableConfig) -> bool:
    return config.config_operation == OpType.DELETE


def _ops(resource: AlterConfigsResource, known: Mapping[str, Key[Any]]) -> list[ConfigOp]:
    """The changes. Raises InvalidTopicConfig; ControllerError where Apache Kafka answers UNKNOWN_SERVER_ERROR."""
    ops = []
    for config in resource.configs:
        try:
            op = ConfigOp(config.name, config.value, OpType(config.config_operation))
        except ValueError:
            raise ControllerError(f"Unknown operations type {config.config_operation}") from None
        if op.op in (OpType.APPEND, OpType.SUBTRACT):
            if op.name not in known:
                raise ControllerError(f"{op.name} is not known, so nothing can be appended to it or subtracted from it")
            check_is_list(op, known[op.name])
        ops.append(op)
    return ops


def _check_node_id(name: str, node_id: int) -> None:
    try:
        given = java_int(name)
    except ValueError:
        raise InvalidAdminRequest(f"Node id must be an integer, but it is: {name}") from None
    if given != node_id:
        # Apache Kafka names its own id twice here.
        raise InvalidAdminRequest(f"Unexpected node id. Expected {node_id}, but received {node_id}")
