"""Whether a request of the controller is meant for this life of the broker (KIP-380). For the handlers of the controller's requests."""

import logging

from broker.request.context import RequestContext
from protocol.api_keys import ApiKey

UNKNOWN_BROKER_EPOCH = -1

logger = logging.getLogger(__name__)


def is_broker_epoch_stale(broker_epoch: int, context: RequestContext) -> bool:
    """Whether the controller speaks to an earlier life of this broker. Old versions do not say, and are believed."""
    current = context.broker.cluster.controller.broker_epoch
    if broker_epoch == UNKNOWN_BROKER_EPOCH or broker_epoch >= current:
        return False
    logger.info(
        "refused %s from %s: it is for broker epoch %d, this is %d",
        ApiKey(context.api_key).name, context.client.connection_id, broker_epoch, current,
    )  # fmt: skip
    return True
