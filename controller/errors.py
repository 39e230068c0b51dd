"""What the metadata store and the controller raise: the facts in fields, Kafka's sentence as the text, no wire codes.

`broker/request/error_map.py` turns them into error codes; the texts are those a Kafka 3.9 broker sends, since tools print and tests
compare them.
"""


class StoreError(Exception):
    """The metadata store refused a request."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{type(self).__name__} for {path}")
        self.path = path
        self.index = 0
        """Inside a Multi: which of its writes failed."""


class NoNode(StoreError):
    """The node, or the parent of a node to create, does not exist."""


class NodeExists(StoreError):
    """There is a node of this path already."""


class BadVersion(StoreError):
    """The node's version is not the expected one: somebody else wrote first."""


class NotEmpty(StoreError):
    """A node with children cannot be deleted."""


class NoChildrenForEphemerals(StoreError):
    """An ephemeral node cannot have children."""


class BadArguments(StoreError):
    """The path is not one that a znode can have."""


class SessionExpired(StoreError):
    """The session ended: its ephemeral nodes and watches are gone. The path is empty when no single node was asked for."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written: the path of the file or the address of the ensemble, and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path)
        self.reason = reason
        self.args = (f"{path}: {reason}",)


class ControllerError(Exception):
    """An administrative request that the controller refuses, or a state that stops it."""


class ControllerMoved(ControllerError):
    """Another broker is controller (again): whoever wrote under the old epoch must stop."""


class NotController(ControllerError):
    """This broker is not the active controller."""


class StaleBrokerEpoch(ControllerError):
    """The request comes from an earlier life of the broker."""


class BrokerIdNotRegistered(ControllerError):
    """No live broker has this id."""


class BrokerIdInUse(ControllerError):
    """Another live session has registered this broker id."""


class RackInformationIncomplete(ControllerError):
    """Some brokers have a rack and some have none, so that replicas cannot be spread over racks."""


class TopicExists(ControllerError):
    """The topic exists."""


class TopicMarkedForDeletion(TopicExists):
    """The topic is still being deleted, so that its name is not free yet."""


class InvalidTopicName(ControllerError):
    """The name is not one that a topic can have, or collides with another's metric names."""


class InvalidPartitions(ControllerError):
    """The number of partitions is not possible."""


class InvalidReplicationFactor(ControllerError):
    """The replication factor is not possible with the brokers there are."""


class InvalidReplicaAssignment(ControllerError):
    """A replica assignment made by hand is not possible."""


class InvalidTopicConfig(ControllerError):
    """A configuration that was asked for is not possible."""


class InvalidAdminRequest(ControllerError):
    """The request contradicts itself."""


class UnknownTopicOrPartition(ControllerError):
    """There is no such topic or partition."""


class UnknownTopicId(ControllerError):
    """There is no topic of this id."""


class TopicDeletionDisabled(ControllerError):
    """delete.topic.enable is false."""


class ReassignmentInProgress(ControllerError):
    """The topic's partitions are being moved."""


class NoReassignmentInProgress(ControllerError):
    """There is no reassignment to cancel."""


class ElectionNotNeeded(ControllerError):
    """The leader is the wanted one already."""


class PreferredLeaderNotAvailable(ControllerError):
    """The preferred replica cannot lead now."""


class EligibleLeadersNotAvailable(ControllerError):
    """No replica can lead now."""


class InvalidUpdateVersion(ControllerError):
    """The ISR change is based on an old partition epoch."""


class FencedLeaderEpoch(ControllerError):
    """The ISR change comes from an old leader epoch."""


class IneligibleReplica(ControllerError):
    """A replica that is not alive was proposed for the ISR."""


class ProducerIdsExhausted(ControllerError):
    """All producer ids have been given out."""


class BrokerNotAvailable(ControllerError):
    """A broker that is named is not alive."""


class AdminTimeout(ControllerError):
    """The change was made but did not come into force in the time the client gave."""

    def __init__(self, message: str = "", topic_id: bytes = bytes(16)) -> None:
        super().__init__(message)
        self.topic_id = topic_id
        """Of the topic that was created; zero for any other change."""
