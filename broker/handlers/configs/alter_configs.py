"""Handles AlterConfigs (api 33), versions 0-2. KIP-133: replaces all overrides of a resource.

Deprecated in favour of IncrementalAlterConfigs; old tools still send it. Resources: topics, this broker, and all brokers (an empty name).
"""

from ottla.broker.handlers.configs.config_resources import (
    ConfigResourceType,
    change_each,
    check_entries,
    check_kind,
    refuse_client_metrics,
)
from ottla.broker.request.context import RequestContext
from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

KINDS = frozenset({ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.CLIENT_METRICS})


async def handle_alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replace the overrides of each resource, or only check whether that is possible."""
    changes = _Changes(context.broker.administration.config_admin, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=await change_each(request.resources, changes, AlterConfigsResourceResponse, context))


class _Changes:
    """See `Changes`."""

    def __init__(self, admin: ConfigAdmin, *, validate_only: bool) -> None:
        self._admin = admin
        self.validate_only = validate_only

    def check(self, resource: AlterConfigsResource) -> None:
        check_entries(resource)
        check_kind(resource, KINDS)

    async def change(self, resource: AlterConfigsResource, *, validate_only: bool) -> None:
        configs = {config.name: config.value or "" for config in resource.configs}
        if resource.resource_type == ConfigResourceType.TOPIC:
            await self._admin.set_topic_configs(resource.resource_name, configs, validate_only=validate_only)
        elif resource.resource_type == ConfigResourceType.BROKER:
            await self._admin.set_broker_configs(resource.resource_name, configs, validate_only=validate_only)
        else:
            refuse_client_metrics()
