"""Continues `refusals` for groups, transactions, configurations, security and requests between brokers."""

from __future__ import annotations

from ottla.protocol.api_keys import ApiKey
from tests.support.refusals import (
    CLUSTER_ACTION,
    CLUSTER_REFUSED,
    CLUSTER_TEXT,
    GROUP_REFUSED,
    GROUP_TEXT,
    ID_REFUSED,
    ILLEGAL_SASL_STATE,
    NO_TOKENS,
    NOT_ASKED,
    THE_ID,
    TOPIC_REFUSED,
    TOPIC_TEXT,
    Row,
    of_cluster,
    of_topics,
    two,
)

GROUPS = [
    Row(
        ApiKey.OFFSET_COMMIT,
        8,
        {"group_id": "g", "topics": two(partitions=[{"committed_offset": 1}])},
        ["READ GROUP g"],
        {"topics": two(partitions=[{"partition_index": 0, "error_code": GROUP_REFUSED}])},
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        7,
        {"group_id": "g", "topics": two(partition_indexes=[0])},
        ["DESCRIBE GROUP g"],
        {"error_code": GROUP_REFUSED, "topics": []},
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        9,
        {"groups": [{"group_id": name, "topics": None} for name in ("g", "h")]},
        ["DESCRIBE GROUP g", "DESCRIBE GROUP h"],
        {"groups": [{"group_id": name, "error_code": GROUP_REFUSED} for name in ("g", "h")]},
        "of two groups",
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        0,
        {"group_id": "g", "topics": two(partition_indexes=[0])},
        ["DESCRIBE GROUP g"],
        {"topics": two(partitions=[{"committed_offset": -1, "metadata": "", "error_code": GROUP_REFUSED}])},
        "from the store",
    ),
    Row(
        ApiKey.FIND_COORDINATOR,
        2,
        {"key": "g", "key_type": 0},
        ["DESCRIBE GROUP g", "DESCRIBE GROUP g"],
        {"error_code": GROUP_REFUSED, "error_message": GROUP_TEXT, "node_id": -1, "port": -1},
        "of a group",
    ),
    Row(
        ApiKey.FIND_COORDINATOR,
        6,
        {"coordinator_keys": ["t"], "key_type": 1},
        ["DESCRIBE TRANSACTIONAL_ID t", "DESCRIBE TRANSACTIONAL_ID t"],
        {"coordinators": [{"key": "t", "error_code": ID_REFUSED, "error_message": "", "node_id": -1, "port": -1}]},
        "of a transaction",
    ),
    Row(
        ApiKey.FIND_COORDINATOR,
        6,
        {"coordinator_keys": ["s"], "key_type": 2},
        [CLUSTER_ACTION, CLUSTER_ACTION],
        {"coordinators": [{"key": "s", "error_code": CLUSTER_REFUSED, "error_message": "", "node_id": -1, "port": -1}]},
        "of a share group",
    ),
    Row(
        ApiKey.JOIN_GROUP,
        9,
        {"group_id": "g", "session_timeout_ms": 10_000, "protocol_type": "consumer"},
        ["READ GROUP g"],
        {"error_code": GROUP_REFUSED, "generation_id": -1, "protocol_name": None},
    ),
    Row(ApiKey.HEARTBEAT, 4, {"group_id": "g"}, ["READ GROUP g"], {"error_code": GROUP_REFUSED}),
    Row(ApiKey.LEAVE_GROUP, 5, {"group_id": "g", "members": [{}]}, ["READ GROUP g"], {"error_code": GROUP_REFUSED, "members": []}),
    Row(
        ApiKey.SYNC_GROUP,
        5,
        {"group_id": "g", "protocol_type": "consumer", "protocol_name": "range"},
        ["READ GROUP g"],
        {"error_code": GROUP_REFUSED},
    ),
    Row(
        ApiKey.DESCRIBE_GROUPS,
        5,
        {"groups": ["g", "h"], "include_authorized_operations": True},
        ["DESCRIBE GROUP g", "DESCRIBE GROUP h"],
        {"groups": [{"group_id": name, "error_code": GROUP_REFUSED, "authorized_operations": NOT_ASKED} for name in ("g", "h")]},
    ),
    Row(ApiKey.LIST_GROUPS, 5, {}, of_cluster("DESCRIBE"), {"groups": []}),
    Row(
        ApiKey.DELETE_GROUPS,
        2,
        {"groups_names": ["g"]},
        ["DELETE GROUP g"],
        {"results": [{"group_id": "g", "error_code": GROUP_REFUSED}]},
    ),
    Row(
        ApiKey.OFFSET_DELETE,
        0,
        {"group_id": "g", "topics": two(partitions=[{}])},
        ["DELETE GROUP g"],
        {"error_code": GROUP_REFUSED},
    ),
    Row(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, {"group_id": "g"}, ["READ GROUP g"], {"error_code": GROUP_REFUSED}),
    Row(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        0,
        {"group_ids": ["g"]},
        ["DESCRIBE GROUP g"],
        {"groups": [{"group_id": "g", "error_code": GROUP_REFUSED}]},
    ),
]

TRANSACTIONS = [
    Row(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        {"transactional_id": "t", "group_id": "g", "topics": two(partitions=[{"committed_offset": 1}])},
        ["WRITE TRANSACTIONAL_ID t"],
        {"topics": two(partitions=[{"partition_index": 0, "error_code": ID_REFUSED}])},
    ),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        5,
        {"transactional_id": "t", "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1},
        ["WRITE TRANSACTIONAL_ID t"],
        {"error_code": ID_REFUSED, "producer_id": -1, "producer_epoch": -1},
    ),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        5,
        {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        [*of_cluster("IDEMPOTENT_WRITE"), "WRITE TOPIC any"],
        {"error_code": CLUSTER_REFUSED, "producer_id": -1, "producer_epoch": -1},
        "idempotent",
    ),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {"v3_and_below_transactional_id": "t", "v3_and_below_topics": two(partitions=[0])},
        ["WRITE TRANSACTIONAL_ID t"],
        {
            "results_by_topic_v3_and_below": two(
                results_by_partition=[{"partition_index": 0, "partition_error_code": ID_REFUSED}],
            )
        },
    ),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        4,
        {"transactions": [{"transactional_id": "t", "topics": two(partitions=[0])}]},
        [CLUSTER_ACTION],
        {"error_code": CLUSTER_REFUSED},
        "of brokers",
    ),
    Row(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        {"transactional_id": "t", "group_id": "g"},
        ["WRITE TRANSACTIONAL_ID t"],
        {"error_code": ID_REFUSED},
    ),
    Row(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": ["t"]},
        ["DESCRIBE TRANSACTIONAL_ID t"],
        {"transaction_states": [{"transactional_id": "t", "error_code": ID_REFUSED}]},
    ),
    Row(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        {"markers": [{"producer_id": 1, "topics": two(partition_indexes=[0])}]},
        [*of_cluster("ALTER"), CLUSTER_ACTION],
        {"markers": [{"producer_id": 1, "topics": two(partitions=[{"partition_index": 0, "error_code": CLUSTER_REFUSED}])}]},
    ),
    Row(ApiKey.LIST_TRANSACTIONS, 1, {}, [], {"error_code": 0, "transaction_states": []}),
    Row(ApiKey.END_TXN, 3, {"transactional_id": "t"}, ["WRITE TRANSACTIONAL_ID t"], {"error_code": ID_REFUSED}),
    Row(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        {"topics": two(partition_indexes=[0])},
        of_topics("READ"),
        {"topics": two(partitions=[{"error_code": TOPIC_REFUSED, "error_message": TOPIC_TEXT}])},
    ),
]

TOPIC_RESOURCE = {"resource_type": 2, "resource_name": "topic"}
BROKER_RESOURCE = {"resource_type": 4, "resource_name": "0"}
LOGGER_RESOURCE = {"resource_type": 8, "resource_name": "0"}
CHANGE = [{"name": "retention.ms", "value": "1"}]
BROKER_CHANGE = [{"name": "num.io.threads", "value": "8"}]

LATER = [
    Row(
        ApiKey.LIST_CONFIG_RESOURCES,
        1,
        {"resource_types": []},
        of_cluster("DESCRIBE_CONFIGS"),
        {"error_code": CLUSTER_REFUSED},
    ),
    Row(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        0,
        {"client_instance_id": bytes(range(32, 48))},
        [],
        {
            "client_instance_id": bytes(range(32, 48)),
            "subscription_id": -725_132_322,
            "accepted_compression_types": [4, 3, 1, 2],
            "push_interval_ms": 300_000,
            "telemetry_max_bytes": 1_048_576,
            "delta_temporality": True,
        },
        "needs no right",
    ),
    Row(ApiKey.PUSH_TELEMETRY, 0, {}, [], {"error_code": 42}, "needs no right"),
]
"""APIs that Apache Kafka 3.9 does not have with ZooKeeper."""

CONFIGS = [
    Row(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {"resources": [TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE]},
        ["DESCRIBE_CONFIGS TOPIC topic", *2 * of_cluster("DESCRIBE_CONFIGS")],
        {
            "results": [
                {**TOPIC_RESOURCE, "error_code": TOPIC_REFUSED, "error_message": TOPIC_TEXT},
                {**BROKER_RESOURCE, "error_code": CLUSTER_REFUSED, "error_message": CLUSTER_TEXT},
                {**LOGGER_RESOURCE, "error_code": CLUSTER_REFUSED, "error_message": CLUSTER_TEXT},
            ]
        },
    ),
    Row(
        ApiKey.ALTER_CONFIGS,
        2,
        {"resources": [{**TOPIC_RESOURCE, "configs": CHANGE}, {**BROKER_RESOURCE, "configs": BROKER_CHANGE}]},
        ["ALTER_CONFIGS TOPIC topic", *of_cluster("ALTER_CONFIGS")],
        {
            "responses": [
                {**TOPIC_RESOURCE, "error_code": TOPIC_REFUSED, "error_message": None},
                {**BROKER_RESOURCE, "error_code": CLUSTER_REFUSED, "error_message": None},
            ]
        },
    ),
    Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": [
                {**TOPIC_RESOURCE, "configs": CHANGE},
                {**BROKER_RESOURCE, "configs": BROKER_CHANGE},
                {**LOGGER_RESOURCE, "configs": [{"name": "broker", "value": "INFO"}]},
            ]
        },
        ["ALTER_CONFIGS TOPIC topic", *2 * of_cluster("ALTER_CONFIGS")],
        {
            "responses": [
                {**TOPIC_RESOURCE, "error_code": TOPIC_REFUSED, "error_message": None},
                {**BROKER_RESOURCE, "error_code": CLUSTER_REFUSED, "error_message": None},
                {**LOGGER_RESOURCE, "error_code": CLUSTER_REFUSED, "error_message": None},
            ]
        },
    ),
    Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {"resources": [{**BROKER_RESOURCE, "configs": [{"name": "num.io.threads", "value": "none"}]}]},
        of_cluster("ALTER_CONFIGS"),
        {"responses": [{**BROKER_RESOURCE, "error_code": CLUSTER_REFUSED, "error_message": None}]},
        "of what a broker could not become",
    ),
    Row(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        {"components": []},
        of_cluster("DESCRIBE_CONFIGS"),
        {"error_code": CLUSTER_REFUSED, "error_message": None, "entries": None},
    ),
    Row(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {"entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": [{"key": "producer_byte_rate", "value": 1.0}]}]},
        of_cluster("ALTER_CONFIGS"),
        {
            "entries": [
                {
                    "error_code": CLUSTER_REFUSED,
                    "error_message": CLUSTER_TEXT,
                    "entity": [{"entity_type": "user", "entity_name": "u"}],
                }
            ]
        },
    ),
    Row(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        {"users": [{"name": "u"}]},
        of_cluster("DESCRIBE"),
        {
            "error_code": CLUSTER_REFUSED,
            "error_message": None,
            "results": [{"user": "", "error_code": CLUSTER_REFUSED, "error_message": None}],
        },
    ),
    Row(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {"deletions": [{"name": "u", "mechanism": 1}]},
        of_cluster("ALTER"),
        {"results": [{"user": "u", "error_code": CLUSTER_REFUSED, "error_message": None}]},
    ),
]

STATE = {"partition_index": 0, "leader_epoch": 0, "replicas": [0], "isr": [0]}

CONTROL = [
    Row(
        ApiKey.LEADER_AND_ISR,
        7,
        {"topic_states": [{"topic_name": "topic", "topic_id": THE_ID, "partition_states": [STATE]}]},
        [CLUSTER_ACTION],
        {
            "error_code": CLUSTER_REFUSED,
            "topics": [{"topic_id": THE_ID, "partition_errors": [{"partition_index": 0, "error_code": CLUSTER_REFUSED}]}],
        },
    ),
    Row(
        ApiKey.LEADER_AND_ISR,
        1,
        {"ungrouped_partition_states": [{"topic_name": "topic", **STATE}]},
        [CLUSTER_ACTION],
        {
            "error_code": CLUSTER_REFUSED,
            "partition_errors": [{"topic_name": "topic", "partition_index": 0, "error_code": CLUSTER_REFUSED}],
        },
    ),
    Row(
        ApiKey.STOP_REPLICA,
        4,
        {"topic_states": [{"topic_name": "topic", "partition_states": [{"partition_index": 0, "delete_partition": True}]}]},
        [CLUSTER_ACTION],
        {
            "error_code": CLUSTER_REFUSED,
            "partition_errors": [{"topic_name": "topic", "partition_index": 0, "error_code": CLUSTER_REFUSED}],
        },
    ),
    Row(
        ApiKey.UPDATE_METADATA,
        8,
        {"controller_epoch": 99, "topic_states": [{"topic_name": "topic", "topic_id": THE_ID}]},
        [CLUSTER_ACTION],
        {"error_code": CLUSTER_REFUSED},
    ),
    Row(ApiKey.CONTROLLED_SHUTDOWN, 3, {"broker_id": 0}, [CLUSTER_ACTION], {"error_code": CLUSTER_REFUSED}),
    Row(ApiKey.ALTER_PARTITION, 2, {"broker_id": 0, "topics": []}, [CLUSTER_ACTION], {"error_code": CLUSTER_REFUSED}),
    Row(ApiKey.ALLOCATE_PRODUCER_IDS, 0, {"broker_id": 0}, [CLUSTER_ACTION], {"error_code": CLUSTER_REFUSED, "producer_id_len": 0}),
    Row(
        ApiKey.UPDATE_FEATURES,
        1,
        {"feature_updates": [{"feature": "f"}]},
        of_cluster("ALTER"),
        {"error_code": CLUSTER_REFUSED, "error_message": CLUSTER_TEXT},
    ),
    Row(
        ApiKey.DESCRIBE_CLUSTER,
        1,
        {"include_cluster_authorized_operations": True},
        of_cluster("DESCRIBE"),
        {"cluster_authorized_operations": 0},
    ),
]

ACL = {"resource_type": 2, "resource_name": "topic", "resource_pattern_type": 3, "principal": "User:u", "host": "*", "operation": 3,
       "permission_type": 3}  # fmt: skip
ACL_FILTER = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3}

SECURITY = [
    Row(
        ApiKey.DESCRIBE_ACLS,
        3,
        ACL_FILTER,
        of_cluster("DESCRIBE"),
        {"error_code": CLUSTER_REFUSED, "error_message": CLUSTER_TEXT},
    ),
    Row(
        ApiKey.CREATE_ACLS,
        3,
        {"creations": [ACL]},
        of_cluster("ALTER"),
        {"results": [{"error_code": CLUSTER_REFUSED, "error_message": CLUSTER_TEXT}]},
    ),
    Row(
        ApiKey.DELETE_ACLS,
        3,
        {"filters": [ACL_FILTER]},
        of_cluster("ALTER"),
        {"filter_results": [{"error_code": CLUSTER_REFUSED, "error_message": CLUSTER_TEXT}]},
    ),
    Row(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, [], {"error_code": ILLEGAL_SASL_STATE}),
    Row(
        ApiKey.SASL_AUTHENTICATE,
        2,
        {"auth_bytes": b""},
        [],
        {
            "error_code": ILLEGAL_SASL_STATE,
            "error_message": "SaslAuthenticate request received after successful authentication",
        },
    ),
    Row(ApiKey.API_VERSIONS, 4, {"client_software_name": "a", "client_software_version": "1"}, [], {}),
    Row(
        ApiKey.CREATE_DELEGATION_TOKEN,
        3,
        {},
        [],
        {
            "error_code": NO_TOKENS,
            "principal_type": "User",
            "principal_name": "ANONYMOUS",
            "token_requester_principal_type": "User",
            "token_requester_principal_name": "ANONYMOUS",
            "issue_timestamp_ms": -1,
            "expiry_timestamp_ms": -1,
            "max_timestamp_ms": -1,
        },
    ),
    Row(ApiKey.RENEW_DELEGATION_TOKEN, 2, {}, [], {"error_code": NO_TOKENS, "expiry_timestamp_ms": -1}),
    Row(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, {}, [], {"error_code": NO_TOKENS, "expiry_timestamp_ms": -1}),
    Row(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {}, [], {"error_code": NO_TOKENS}),
]
