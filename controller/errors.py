"""Defines the exceptions of the metadata store and the controller: facts in fields, Kafka's sentence as the text, no
error codes.

`coordination/error_map.py` maps them to error codes. The texts are those of a Kafka 3.9 broker, since tools print
them and tests compare them.
"""


class StoreError(Exception):
    """The metadata store refused a request."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{type(self).__name__} for {path}")
        self.path = path
        self.index = 0
        """Inside a Multi: index of the write that failed."""


class NoNode(StoreError):
    """The node, or the parent of a node to create, does not exist."""


class NodeExists(StoreError):
    """A node with this path exists already."""


class BadVersion(StoreError):
    """The node's version is not the expected one: another client wrote first."""


class NotEmpty(StoreError):
    """A node with children cannot be deleted."""


class NoChildrenForEphemerals(StoreError):
    """An ephemeral node cannot have children."""


class BadArguments(StoreError):
    """The path is not one that a znode can have."""


class SessionExpired(StoreError):
    """The session ended: its ephemeral nodes and watches are gone. The path is empty when the request names no single
    node."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written. Carries the path of the file or the address of the ensemble, and the
    reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path)
        self.reason = reason
        self.args = (f"{path}: {reason}",)


class RequestTooLong(StoreUnavailable):
    """A request has more bytes than ZooKeeper accepts."""


class NoAuth(StoreUnavailable):
    """ZooKeeper denies this client the operation: the node belongs to another identity."""


SAME_IDENTITY = (
    "all brokers of a cluster need the same scheme and name: ottla.zookeeper.auth, the section Client of ottla.jaas.file, "
    "or the certificate of zookeeper.ssl.keystore.location"
)
"""The remedy of NoAuth."""


class ControllerError(Exception):
    """The controller refuses an administrative request, or a state stops it."""


class ControllerMoved(ControllerError):
    """Another broker is controller, or this one is again under a new epoch: writes under the old epoch must stop."""


class NotController(ControllerError):
    """This broker is not the active controller."""


class StaleBrokerEpoch(ControllerError):
    """The request comes from an earlier incarnation of the broker."""


class BrokerIdNotRegistered(ControllerError):
    """No live broker has this id."""


class BrokerIdInUse(ControllerError):
    """Another live session has registered this broker id."""


class RackInformationIncomplete(ControllerError):
    """Some brokers have a rack and some have none, so replicas cannot be spread over racks."""


class TopicExists(ControllerError):
    """The topic exists."""


class TopicMarkedForDeletion(TopicExists):
    """The topic is still being deleted, so its name is not free yet."""


class InvalidTopicName(ControllerError):
    """A topic cannot have this name, or its metric names collide with those of another topic."""


class InvalidPartitions(ControllerError):
    """The number of partitions is not possible."""


class InvalidReplicationFactor(ControllerError):
    """The replication factor is not possible with the current brokers."""


class InvalidReplicaAssignment(ControllerError):
    """A manual replica assignment is not possible."""


class InvalidTopicConfig(ControllerError):
    """A requested configuration is not valid."""


class InvalidAdminRequest(ControllerError):
    """The request contradicts itself."""


class UnknownTopicOrPartition(ControllerError):
    """There is no such topic or partition."""


class UnknownTopicId(ControllerError):
    """There is no topic of this id."""


class TopicDeletionDisabled(ControllerError):
    """delete.topic.enable is false."""


class ReassignmentInProgress(ControllerError):
    """The topic's partitions are being reassigned."""


class NoReassignmentInProgress(ControllerError):
    """There is no reassignment to cancel."""


class ElectionNotNeeded(ControllerError):
    """The leader is already the requested one."""


class PreferredLeaderNotAvailable(ControllerError):
    """The preferred replica cannot lead now."""


class EligibleLeadersNotAvailable(ControllerError):
    """No replica can lead now."""


class FeatureUpdateFailed(ControllerError):
    """The finalized features cannot be written; the text says why."""


class InvalidUpdateVersion(ControllerError):
    """The ISR change is based on an old partition epoch."""


class FencedLeaderEpoch(ControllerError):
    """The ISR change comes from an old leader epoch."""


class IneligibleReplica(ControllerError):
    """A replica that is not alive was proposed for the ISR."""


class ProducerIdsExhausted(ControllerError):
    """All producer ids have been given out."""


class BrokerNotAvailable(ControllerError):
    """A broker in the request is not alive."""


class AdminTimeout(ControllerError):
    """The change was made but did not take effect within the client's timeout."""

    def __init__(self, message: str = "", topic_id: bytes = bytes(16)) -> None:
        super().__init__(message)
        self.topic_id = topic_id
        """Id of the topic that was created; zero for any other change."""


class ThrottlingQuotaExceeded(ControllerError):
    """The client has created or deleted too many partitions, and has to wait (KIP-599)."""
