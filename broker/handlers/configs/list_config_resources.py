"""Handles ListConfigResources (api 74), versions 0-1. KIP-714: lists client metrics; KIP-1142: from 1 resources of any type."""

from collections.abc import Iterable
from typing import Final

from ottla.broker.handlers.configs.config_resources import ALL_KINDS, ConfigResourceType
from ottla.broker.request.context import RequestContext
from ottla.broker.request.services import Services
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_config_resources import ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse

FIRST_VERSION_WITH_TYPES: Final = 1


async def handle_list_config_resources(request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
    """List the names of the resources."""
    if not context.is_authorized(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = set(request.resource_types) if context.api_version >= FIRST_VERSION_WITH_TYPES else {ConfigResourceType.CLIENT_METRICS}
    if wanted - ALL_KINDS:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    response = ListConfigResourcesResponse()
    for kind in sorted(wanted or ALL_KINDS):
        for name in list(_names(ConfigResourceType(kind), context.broker)):
            response.config_resources.append(ConfigResource(resource_name=name, resource_type=kind))
            await pause()
    return response


def _names(kind: ConfigResourceType, services: Services) -> Iterable[str]:
    if kind == ConfigResourceType.TOPIC:
        return services.metadata.topics
    if kind == ConfigResourceType.GROUP:
        return services.administration.group_configs.configs
    if kind == ConfigResourceType.CLIENT_METRICS:
        return services.administration.client_metrics.configs
    return map(str, services.metadata.brokers)
