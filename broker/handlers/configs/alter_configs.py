"""Handles AlterConfigs (api 33), versions 0-2. KIP-133: replaces all overrides of a resource.

Deprecated in favour of IncrementalAlterConfigs; old tools still send it. Resources: topics, this broker, all brokers (an empty
name), groups, and client metrics.
"""

from ottla.broker.handlers.configs.config_resources import (
    ConfigResourceType,
    change_each,
    change_resource,
    check_entries,
    check_kind,
    known_kinds,
)
from ottla.broker.request.context import RequestContext
from ottla.broker.request.services import Services
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle_alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replace the overrides of each resource, or only check whether that is possible."""
    changes = _Changes(context.broker, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=await change_each(request.resources, changes, AlterConfigsResourceResponse, context))


class _Changes:
    """See `Changes`."""

    def __init__(self, services: Services, *, validate_only: bool) -> None:
        self._services = services
        self._admin = services.administration.config_admin
        self.validate_only = validate_only

    def check(self, resource: AlterConfigsResource) -> None:
        check_entries(resource)
        check_kind(resource, known_kinds(self._services) - {ConfigResourceType.BROKER_LOGGER})
        if resource.resource_type == ConfigResourceType.BROKER:
            self._admin.check_broker_name(resource.resource_name)

    async def change(self, resource: AlterConfigsResource, *, validate_only: bool) -> None:
        configs = {config.name: config.value or "" for config in resource.configs}
        if resource.resource_type == ConfigResourceType.TOPIC:
            await self._admin.set_topic_configs(resource.resource_name, configs, validate_only=validate_only)
        elif resource.resource_type == ConfigResourceType.BROKER:
            await self._admin.set_broker_configs(resource.resource_name, configs, validate_only=validate_only)
        else:
            await change_resource(resource, lambda _: configs, self._services, validate_only=validate_only)
