"""Reads the topics of subscriptions of the consumer protocol, which are unchecked bytes from clients."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from struct import Struct
from typing import Final

from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.schema.wire import ProtocolError

MOST_TOPICS: Final = 100_000
"""Most topics of all members of a group that are read: 10 MB. A megabyte of subscriptions may name 300,000."""

MAX_TOPICS: Final = 20_000
"""Most topics in the subscription of a member of a consumer group. The group keeps them, and a record of `__consumer_offsets` has them."""

VERSION_SIZE: Final = 2

_HEAD = Struct(">hi")  # version, number of topics


def head_of(data: bytes) -> tuple[int, int]:
    """The version of a subscription or an assignment, and how many topics it says that it has. Raises ProtocolError."""
    if len(data) < _HEAD.size:
        raise ProtocolError(f"{len(data)} bytes where a version and a number of topics are expected")
    version, count = _HEAD.unpack_from(data)
    if version < 0:
        raise ProtocolError(f"version {version} of the consumer protocol")
    return version, count


def topics_of(subscriptions: Iterable[bytes]) -> Generator[None, None, frozenset[str] | None]:
    """All topics in these subscriptions, or None when one of them cannot be read, or there are too many. Yields where it may pause: a topic
    takes a microsecond.

    Only the topics are read. Every version has them in the same place, so future versions can be read, too.
    """
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            if head_of(subscription)[1] > MOST_TOPICS:
                return None
            message, _ = yield from ConsumerProtocolSubscription.decode_steps(subscription, 0, VERSION_SIZE)
        except ProtocolError:
            return None
        topics.update(message.topics)
        if len(topics) > MOST_TOPICS:
            return None
        yield
    return frozenset(topics)


def topics_at_once(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The same without a pause, for few topics."""
    steps = topics_of(subscriptions)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: frozenset[str] | None = end.value
            return found
