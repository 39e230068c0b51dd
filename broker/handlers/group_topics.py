"""What OffsetCommit and OffsetDelete do alike: sort out the partitions that may not be touched or do not exist, and answer by topic."""

from collections.abc import Container, Sequence

from broker.request_context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from broker.turns import Steps
from protocol.errors import ErrorCode


class PartitionErrors:
    """The answer for each partition, by topic, in the order in which it became known."""

    __slots__ = ("by_topic",)

    def __init__(self) -> None:
        self.by_topic: dict[str, list[tuple[int, ErrorCode]]] = {}

    def add(self, topic: str, index: int, code: ErrorCode) -> None:
        """One partition's answer is known."""
        self.by_topic.setdefault(topic, []).append((index, code))


def partitions_of(topic: str, context: RequestContext) -> tuple[Container[int], ErrorCode]:
    """The partitions of a topic that can be served, and what to say of any other."""
    if not context.is_authorized(Operation.READ, ResourceType.TOPIC, topic):
        return (), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    image = context.broker.cluster.topics.get(topic)
    return () if image is None else image.partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def partitions_to_serve(asked: Sequence[tuple[str, int]], errors: PartitionErrors, context: RequestContext) -> Steps[list[int]]:
    """Which of the partitions asked for can be served, by their place; the others are put into `errors`."""
    topics: dict[str, tuple[Container[int], ErrorCode]] = {}
    served = []
    for place, (topic, index) in enumerate(asked):
        found = topics.get(topic)
        if found is None:
            found = topics[topic] = partitions_of(topic, context)
        if index in found[0]:
            served.append(place)
        else:
            errors.add(topic, index, found[1])
        yield
    return served
