"""ListClientMetricsResources (api 74, KIP-1000): names of client metrics subscriptions. Declared, not served in ZooKeeper mode."""

from protocol.api_keys import ApiKey
from protocol.schema.message import Array, Int16, Int32, Message, String, Struct, field, request, response, struct


@request(ApiKey.LIST_CLIENT_METRICS_RESOURCES)
class ListClientMetricsResourcesRequest(Message):
    """Carries nothing."""


@struct
class ClientMetricsResource(Struct):
    name: String = field()


@response(ApiKey.LIST_CLIENT_METRICS_RESOURCES)
class ListClientMetricsResourcesResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    client_metrics_resources: Array[ClientMetricsResource] = field()
