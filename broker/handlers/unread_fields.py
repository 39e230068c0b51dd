"""Which fields of requests have no effect here, and why: for docs/protocol-support.md. A test holds this against the handlers."""

from typing import Final, NamedTuple

from protocol.api_keys import ApiKey


class Unread(NamedTuple):
    """Fields that a handler does not look at. No names: all fields."""

    names: tuple[str, ...]
    why: str


_KRAFT_ONLY: Final = "only KRaft looks at it, as in Apache Kafka"
_MIGRATION: Final = "set while a cluster moves to KRaft, which is not supported here"
_REFUSED: Final = "refused, whatever it asks for"
_ANSWERED_AT_ONCE: Final = "answered as soon as the controller knows, as by Apache Kafka in ZooKeeper mode"

UNREAD_FIELDS: Final[dict[ApiKey, tuple[Unread, ...]]] = {
    ApiKey.FETCH: (Unread(("cluster_id", "replica_directory_id", "replica_epoch"), _KRAFT_ONLY),),
    ApiKey.LEADER_AND_ISR: (
        Unread(("is_kraft_controller", "type"), _MIGRATION),
        Unread(("live_leaders", "host_name", "port", "broker_id"), "where brokers listen is known from UpdateMetadata"),
        Unread(
            ("leader_recovery_state",),
            "after an unclean election a leader has nothing to recover, as in Apache Kafka: it says so with its next ISR",
        ),
    ),
    ApiKey.STOP_REPLICA: (Unread(("is_kraft_controller",), _MIGRATION),),
    ApiKey.UPDATE_METADATA: (
        Unread(("is_kraft_controller", "type"), _MIGRATION),
        Unread(("zk_version",), "nobody asks for it"),
    ),
    ApiKey.OFFSET_FETCH: (Unread(("member_id", "member_epoch"), "of groups of the consumer protocol (KIP-848)"),),
    ApiKey.SASL_HANDSHAKE: (Unread((), _REFUSED),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (Unread(("replica_id",), "all are told the same"),),
    ApiKey.DESCRIBE_ACLS: (Unread(("resource_name_filter", "principal_filter", "host_filter"), _REFUSED),),
    ApiKey.CREATE_ACLS: (Unread(("resource_name", "principal", "host"), _REFUSED),),
    ApiKey.DELETE_ACLS: (Unread(("resource_name_filter", "principal_filter", "host_filter"), _REFUSED),),
    ApiKey.SASL_AUTHENTICATE: (Unread((), _REFUSED),),
    ApiKey.CREATE_DELEGATION_TOKEN: (Unread((), _REFUSED),),
    ApiKey.RENEW_DELEGATION_TOKEN: (Unread((), _REFUSED),),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (Unread((), _REFUSED),),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (Unread((), _REFUSED),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (Unread(("timeout_ms",), _ANSWERED_AT_ONCE),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (Unread(("timeout_ms",), _ANSWERED_AT_ONCE),),
    ApiKey.UPDATE_FEATURES: (Unread(("timeout_ms", "validate_only"), "no feature is supported"),),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (Unread((), _REFUSED),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Unread((), _REFUSED),),
}
