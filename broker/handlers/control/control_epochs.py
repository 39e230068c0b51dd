"""Refuses requests of the controller that are meant for an earlier incarnation of this broker (KIP-380)."""

import logging

from ottla.broker.request.context import RequestContext
from ottla.protocol.api_keys import ApiKey

UNKNOWN_BROKER_EPOCH = -1

logger = logging.getLogger(__name__)


def is_broker_epoch_stale(broker_epoch: int, context: RequestContext) -> bool:
    """Whether the broker epoch is that of an earlier incarnation. Requests of old versions have none, and are accepted."""
    current = context.broker.cluster.controller.broker_epoch
    if broker_epoch == UNKNOWN_BROKER_EPOCH or broker_epoch >= current:
        return False
    logger.info(
        "refused %s from %s: it is for broker epoch %d; the present epoch is %d",
        ApiKey(context.api_key).name, context.client.connection_id, broker_epoch, current,
    )  # fmt: skip
    return True
