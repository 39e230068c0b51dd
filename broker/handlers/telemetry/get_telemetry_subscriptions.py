"""Handles GetTelemetrySubscriptions (api 71), version 0: a client learns which metrics it shall push, and how often (KIP-714)."""

from ottla.broker.request.context import RequestContext
from ottla.broker.telemetry.client_telemetry import ACCEPTED_CODECS
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse


async def handle_get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Answer what all subscriptions for the client want together. The request needs no rights."""
    telemetry = context.broker.administration.telemetry
    error, instance_id, subscription = await telemetry.subscribe(request.client_instance_id, context.client, context.client_id)
    if subscription is None:
        return GetTelemetrySubscriptionsResponse(error_code=error)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(subscription.metrics),
    )
