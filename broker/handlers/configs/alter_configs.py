"""AlterConfigs (api 33), versions 0-2 (KIP-133): a resource has these and no other overrides from now on.

Deprecated for IncrementalAlterConfigs, and still what old tools send. Topics, this broker, and with an empty name all brokers.
"""

from broker.handlers.configs.config_resources import ConfigResourceType, change_each, check_entries, refuse
from broker.request.context import RequestContext
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle_alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replace the overrides of each resource, or only check whether that could be done."""
    admin = context.broker.config_admin

    async def change(resource: AlterConfigsResource) -> None:
        check_entries(resource)
        configs = {config.name: config.value or "" for config in resource.configs}
        if resource.resource_type == ConfigResourceType.TOPIC:
            await admin.set_topic_configs(resource.resource_name, configs, validate_only=request.validate_only)
        elif resource.resource_type == ConfigResourceType.BROKER:
            await admin.set_broker_configs(resource.resource_name, configs, validate_only=request.validate_only)
        else:
            refuse(resource.resource_type)

    return AlterConfigsResponse(responses=await change_each(request.resources, change, AlterConfigsResourceResponse, context))
