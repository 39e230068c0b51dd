"""Declares GetTelemetrySubscriptions (api 71): a client asks which of its metrics the cluster wants, and how often (KIP-714).

The first request has an empty client instance id; the broker chooses one.
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Array, Bool, Int8, Int16, Int32, Message, String, Uuid, field, request, response


@request(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
class GetTelemetrySubscriptionsRequest(Message):
    client_instance_id: Uuid = field()


@response(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
class GetTelemetrySubscriptionsResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    client_instance_id: Uuid = field()
    subscription_id: Int32 = field()
    accepted_compression_types: Array[Int8] = field()
    push_interval_ms: Int32 = field()
    telemetry_max_bytes: Int32 = field()
    delta_temporality: Bool = field()
    requested_metrics: Array[String] = field()
