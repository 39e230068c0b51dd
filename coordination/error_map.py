"""Maps exceptions of the lower floors to Kafka's error codes. No other module knows both; a test visits every subclass."""

from ottla.config import errors as config_errors
from ottla.controller import errors as controller_errors
from ottla.protocol.errors import ErrorCode
from ottla.replication import errors as replication_errors
from ottla.storage import errors as storage_errors

ERROR_CODES: dict[type[Exception], ErrorCode] = {
    # storage
    storage_errors.StorageError: ErrorCode.UNKNOWN_SERVER_ERROR,
    storage_errors.LogDirFailure: ErrorCode.KAFKA_STORAGE_ERROR,
    storage_errors.LogDirNotFound: ErrorCode.LOG_DIR_NOT_FOUND,
    storage_errors.LogClosed: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    storage_errors.LogBeingTruncated: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    storage_errors.TopicIdNotDurable: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    storage_errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    storage_errors.OffsetMovedToTieredStorage: ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
    storage_errors.CorruptRecord: ErrorCode.CORRUPT_MESSAGE,
    storage_errors.InvalidRecord: ErrorCode.INVALID_RECORD,
    storage_errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    storage_errors.RecordTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    storage_errors.RecordBatchTooLarge: ErrorCode.RECORD_LIST_TOO_LARGE,
    storage_errors.UnsupportedCompressionType: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    storage_errors.UnsupportedForMessageFormat: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    storage_errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    storage_errors.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    storage_errors.InvalidTxnState: ErrorCode.INVALID_TXN_STATE,
    storage_errors.TransactionCoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    storage_errors.InconsistentTopicId: ErrorCode.INCONSISTENT_TOPIC_ID,
    # replication
    replication_errors.ReplicationError: ErrorCode.UNKNOWN_SERVER_ERROR,
    replication_errors.UnknownTopicOrPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    replication_errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    replication_errors.InconsistentTopicId: ErrorCode.INCONSISTENT_TOPIC_ID,
    replication_errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    replication_errors.NotLeaderOrFollower: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    replication_errors.FencedLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    replication_errors.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    replication_errors.NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
    replication_errors.NotEnoughReplicasAfterAppend: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    replication_errors.RecordsNotDeletable: ErrorCode.POLICY_VIOLATION,
    replication_errors.UnknownReplica: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    replication_errors.OffsetNotAvailable: ErrorCode.OFFSET_NOT_AVAILABLE,
    replication_errors.ReplicaStorageFailure: ErrorCode.KAFKA_STORAGE_ERROR,
    # controller
    controller_errors.StoreError: ErrorCode.UNKNOWN_SERVER_ERROR,
    controller_errors.RequestTooLong: ErrorCode.INVALID_REQUEST,
    controller_errors.ControllerError: ErrorCode.UNKNOWN_SERVER_ERROR,
    controller_errors.ControllerMoved: ErrorCode.STALE_CONTROLLER_EPOCH,
    controller_errors.NotController: ErrorCode.NOT_CONTROLLER,
    controller_errors.StaleBrokerEpoch: ErrorCode.STALE_BROKER_EPOCH,
    controller_errors.BrokerIdNotRegistered: ErrorCode.BROKER_ID_NOT_REGISTERED,
    controller_errors.BrokerIdInUse: ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    controller_errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    controller_errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    controller_errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    controller_errors.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    controller_errors.InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    controller_errors.InvalidTopicConfig: ErrorCode.INVALID_CONFIG,
    controller_errors.InvalidAdminRequest: ErrorCode.INVALID_REQUEST,
    controller_errors.UnknownTopicOrPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    controller_errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    controller_errors.TopicDeletionDisabled: ErrorCode.TOPIC_DELETION_DISABLED,
    controller_errors.ReassignmentInProgress: ErrorCode.REASSIGNMENT_IN_PROGRESS,
    controller_errors.NoReassignmentInProgress: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    controller_errors.ElectionNotNeeded: ErrorCode.ELECTION_NOT_NEEDED,
    controller_errors.PreferredLeaderNotAvailable: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    controller_errors.EligibleLeadersNotAvailable: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    controller_errors.FeatureUpdateFailed: ErrorCode.FEATURE_UPDATE_FAILED,
    controller_errors.InvalidUpdateVersion: ErrorCode.INVALID_UPDATE_VERSION,
    controller_errors.FencedLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    controller_errors.IneligibleReplica: ErrorCode.INELIGIBLE_REPLICA,
    controller_errors.BrokerNotAvailable: ErrorCode.BROKER_NOT_AVAILABLE,
    controller_errors.AdminTimeout: ErrorCode.REQUEST_TIMED_OUT,
    controller_errors.ThrottlingQuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    # config
    config_errors.ConfigError: ErrorCode.INVALID_CONFIG,
}

FLOORS = (config_errors, controller_errors, replication_errors, storage_errors)


def error_code(error: BaseException) -> ErrorCode:
    """The code of an exception's class or nearest base class; UNKNOWN_SERVER_ERROR if no floor raises the exception on purpose."""
    for base in type(error).__mro__:
        code = ERROR_CODES.get(base)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


def is_expected(error: BaseException) -> bool:
    """Whether the error only means that the metadata store is unreachable; then a stack trace would not help an operator."""
    return isinstance(error, controller_errors.SessionExpired | controller_errors.StoreUnavailable)


MAX_TEXT = 8000
"""Longest error text for a client, characters; a character has at most four bytes, and a string at most 32767."""


def api_error(error: BaseException) -> tuple[ErrorCode, str | None]:
    """Code and text of an exception, for a response that has fields for both. Kafka's ApiError.fromThrowable.

    The text is None when it adds nothing to the code, and for UNKNOWN_SERVER_ERROR, where it might reveal internals.
    """
    code = error_code(error)
    text = error.client_message if isinstance(error, config_errors.ConfigError) else str(error)
    if code == ErrorCode.UNKNOWN_SERVER_ERROR or text in ("", code.message):
        return code, None
    return code, cut(text)


def cut(text: str) -> str:
    """A text that quotes the request, shortened where it could exceed the longest string of a response."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
