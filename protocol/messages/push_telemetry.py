"""Declares PushTelemetry (api 72): a client pushes its metrics to a broker (KIP-714).

The metrics are an OTLP message, perhaps compressed.
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Bool, Bytes, Int8, Int16, Int32, Message, Uuid, field, request, response


@request(ApiKey.PUSH_TELEMETRY)
class PushTelemetryRequest(Message):
    client_instance_id: Uuid = field()
    subscription_id: Int32 = field()
    terminating: Bool = field()
    compression_type: Int8 = field()
    metrics: Bytes = field()


@response(ApiKey.PUSH_TELEMETRY)
class PushTelemetryResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
