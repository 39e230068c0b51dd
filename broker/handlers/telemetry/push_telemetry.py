"""Handles PushTelemetry (api 72), version 0: a client pushes the values of its metrics (KIP-714)."""

from ottla.broker.request.context import RequestContext
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


async def handle_push_telemetry(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    """Take over the metrics, which the metrics endpoint shows. The request needs no rights."""
    error = await context.broker.administration.telemetry.push(request, context.client, context.client_id)
    return PushTelemetryResponse(error_code=error)
