"""Declares the versions of every API with messages: one range for request and response.

The range of an API has all versions of Apache Kafka 3.9 and 4.4. A broker lists and accepts fewer, depending on the features of its cluster
(`ottla.broker.request.listed_apis`).

The versions are not beside the messages, so that a broker can list them without importing the messages. It lists them for ApiVersions,
usually the first request that it receives.
"""

from typing import Final, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.fields import NO_VERSIONS, Versions


class ApiVersions(NamedTuple):
    """The versions of one API, and its flexible versions, which have compact lengths and tagged fields."""

    valid: Versions
    flexible: Versions


def versions_of(key: ApiKey) -> ApiVersions:
    """The versions of an API. Raises KeyError for an API without declared messages."""
    last, first_flexible = _LAST_AND_FIRST_FLEXIBLE[key]
    first = 1 if key in _WITHOUT_VERSION_0 else 0
    return ApiVersions(Versions(first, last), NO_VERSIONS if first_flexible is None else Versions(first_flexible, last))


def versions_in_3_9(key: ApiKey) -> Versions:
    """The versions of an API in Apache Kafka 3.9."""
    declared = versions_of(key).valid
    return Versions(declared.first, _LAST_IN_3_9.get(key, declared.last))


_LAST_AND_FIRST_FLEXIBLE: Final[dict[ApiKey, tuple[int, int | None]]] = {
    ApiKey.PRODUCE: (13, 9),
    ApiKey.FETCH: (18, 12),
    ApiKey.LIST_OFFSETS: (11, 6),
    ApiKey.METADATA: (13, 9),
    ApiKey.LEADER_AND_ISR: (7, 4),
    ApiKey.STOP_REPLICA: (4, 2),
    ApiKey.UPDATE_METADATA: (8, 6),
    ApiKey.CONTROLLED_SHUTDOWN: (3, 3),
    ApiKey.OFFSET_COMMIT: (10, 8),
    ApiKey.OFFSET_FETCH: (10, 6),
    ApiKey.FIND_COORDINATOR: (6, 3),
    ApiKey.JOIN_GROUP: (9, 6),
    ApiKey.HEARTBEAT: (4, 4),
    ApiKey.LEAVE_GROUP: (5, 4),
    ApiKey.SYNC_GROUP: (5, 4),
    ApiKey.DESCRIBE_GROUPS: (6, 5),
    ApiKey.LIST_GROUPS: (5, 3),
    ApiKey.SASL_HANDSHAKE: (1, None),
    ApiKey.API_VERSIONS: (5, 3),
    ApiKey.CREATE_TOPICS: (7, 5),
    ApiKey.DELETE_TOPICS: (6, 4),
    ApiKey.DELETE_RECORDS: (2, 2),
    ApiKey.INIT_PRODUCER_ID: (6, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (4, 3),
    ApiKey.END_TXN: (5, 3),
    ApiKey.WRITE_TXN_MARKERS: (2, 1),
    ApiKey.TXN_OFFSET_COMMIT: (6, 3),
    ApiKey.DESCRIBE_ACLS: (3, 2),
    ApiKey.CREATE_ACLS: (3, 2),
    ApiKey.DELETE_ACLS: (3, 2),
    ApiKey.DESCRIBE_CONFIGS: (4, 4),
    ApiKey.ALTER_CONFIGS: (2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (5, 2),
    ApiKey.SASL_AUTHENTICATE: (2, 2),
    ApiKey.CREATE_PARTITIONS: (3, 2),
    ApiKey.CREATE_DELEGATION_TOKEN: (3, 2),
    ApiKey.RENEW_DELEGATION_TOKEN: (2, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (2, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (3, 2),
    ApiKey.DELETE_GROUPS: (3, 2),
    ApiKey.ELECT_LEADERS: (2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, None),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_PARTITION: (3, 0),
    ApiKey.UPDATE_FEATURES: (2, 0),
    ApiKey.ENVELOPE: (0, 0),
    ApiKey.DESCRIBE_CLUSTER: (2, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (2, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (1, 0),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0),
    ApiKey.PUSH_TELEMETRY: (0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 0),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 0),
    ApiKey.SHARE_FETCH: (2, 0),
    ApiKey.SHARE_ACKNOWLEDGE: (2, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: (1, 0),
    ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (1, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (1, 0),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
}

_LAST_IN_3_9: Final[dict[ApiKey, int]] = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 17,
    ApiKey.LIST_OFFSETS: 9,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.API_VERSIONS: 4,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.END_TXN: 4,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.DESCRIBE_LOG_DIRS: 4,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.UPDATE_FEATURES: 1,
    ApiKey.DESCRIBE_CLUSTER: 1,
    ApiKey.LIST_TRANSACTIONS: 1,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
}
"""The newest versions in Apache Kafka 3.9, of APIs with newer ones."""

_WITHOUT_VERSION_0: Final = frozenset(
    {ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}
)
"""APIs whose version 0 was a preview."""

DECLARED_APIS: Final = frozenset(_LAST_AND_FIRST_FLEXIBLE)
"""The APIs whose messages are in `ottla.protocol.messages`."""
