"""Checks the codes in ACL requests. Apache Kafka cannot read a request with the code UNKNOWN, and closes the connection."""

from collections.abc import Container

from broker.network.request_channel import CLOSE, Completion
from broker.request.context import RequestContext

UNKNOWN = 0


def refuse_unknown(codes: Container[int], context: RequestContext) -> Completion | None:
    """CLOSE when one of the codes (types of resource, pattern and permission, operations) is UNKNOWN."""
    if UNKNOWN not in codes:
        return None
    context.offend("an ACL request with unknown elements")
    return CLOSE
