"""Reads the topics of subscriptions of the consumer protocol, which are unchecked bytes from clients."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.schema.wire import ProtocolError

_VERSION = Struct(">h")


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics in these subscriptions, or None when one of them cannot be read.

    Only the topics are read. Every version has them in the same place, so future versions can be read, too.
    """
    topics: set[str] = set()
    for subscription in subscriptions:
        if len(subscription) < _VERSION.size or _VERSION.unpack_from(subscription)[0] < 0:
            return None
        try:
            message, _ = ConsumerProtocolSubscription.decode(subscription, 0, _VERSION.size)
        except ProtocolError:
            return None
        topics.update(message.topics)
    return frozenset(topics)
