"""What OffsetCommit and OffsetDelete do alike: sort out the partitions that may not be touched or do not exist, and answer by topic."""

from collections.abc import Sequence

from broker.request_context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode


class PartitionErrors:
    """The answer for each partition, by topic, in the order in which it became known."""

    __slots__ = ("by_topic",)

    def __init__(self) -> None:
        self.by_topic: dict[str, list[tuple[int, ErrorCode]]] = {}

    def add(self, topic: str, index: int, code: ErrorCode) -> None:
        """One partition's answer is known."""
        self.by_topic.setdefault(topic, []).append((index, code))


def partitions_to_serve(asked: Sequence[tuple[str, int]], errors: PartitionErrors, context: RequestContext) -> list[int]:
    """Which of the partitions asked for can be served, by their place; the others are put into `errors`."""
    topics = context.broker.cluster.topics
    allowed: dict[str, bool] = {}
    served = []
    for place, (topic, index) in enumerate(asked):
        is_allowed = allowed.get(topic)
        if is_allowed is None:
            is_allowed = allowed[topic] = context.is_authorized(Operation.READ, ResourceType.TOPIC, topic)
        image = topics.get(topic)
        if not is_allowed:
            errors.add(topic, index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif image is None or index not in image.partitions:
            errors.add(topic, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            served.append(place)
    return served
