"""Lists the request fields that have no effect here, with reasons, for docs/protocol-support.md. A test compares list and handlers."""

from typing import Final, NamedTuple

from ottla.protocol.api_keys import ApiKey


class Unread(NamedTuple):
    """Fields that a handler does not read. No names: all fields."""

    names: tuple[str, ...]
    why: str


_KRAFT_ONLY: Final = "only read in KRaft mode, as in Apache Kafka"
_MIGRATION: Final = "set while a cluster moves to KRaft, which is not supported here"
_REFUSED: Final = "the request is always refused"
_ANSWERED_AT_ONCE: Final = "the controller answers as soon as it can, as in Apache Kafka in ZooKeeper mode"

UNREAD_FIELDS: Final[dict[ApiKey, tuple[Unread, ...]]] = {
    ApiKey.FETCH: (Unread(("cluster_id", "replica_directory_id", "replica_epoch", "high_watermark"), _KRAFT_ONLY),),
    ApiKey.LIST_OFFSETS: (Unread(("timeout_ms",), "only for tiered storage"),),
    ApiKey.DESCRIBE_CLUSTER: (Unread(("include_fenced_brokers",), "there are none in ZooKeeper mode"),),
    ApiKey.LEADER_AND_ISR: (
        Unread(("is_kraft_controller", "type"), _MIGRATION),
        Unread(("live_leaders", "host_name", "port", "broker_id"), "the addresses of brokers come from UpdateMetadata"),
        Unread(
            ("leader_recovery_state",),
            "after an unclean election a leader has nothing to recover, as in Apache Kafka; its next AlterPartition says so",
        ),
    ),
    ApiKey.STOP_REPLICA: (Unread(("is_kraft_controller",), _MIGRATION),),
    ApiKey.UPDATE_METADATA: (
        Unread(("is_kraft_controller", "type"), _MIGRATION),
        Unread(("zk_version",), "no request reads the value back"),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (Unread(("replica_id",), "clients and followers get the same answer"),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (Unread(("timeout_ms",), _ANSWERED_AT_ONCE),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (Unread(("timeout_ms",), _ANSWERED_AT_ONCE),),
    ApiKey.ENVELOPE: (Unread((), _REFUSED),),
}
