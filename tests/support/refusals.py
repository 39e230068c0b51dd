"""Lists the authorizer's questions of every API, and the answers to a client without any rights, for `test_authorization`.

The refusals are those of Apache Kafka 3.9, read from its sources: error codes and their places, omitted parts, and equal answers for
existing and missing names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.protocol.api_keys import ApiKey
from tests.support.batches import a_batch

CLUSTER = "kafka-cluster"
NOT_ASKED = -(2**31)
TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED, ID_REFUSED = 29, 30, 31, 53
UNSUPPORTED_VERSION, SECURITY_DISABLED, ILLEGAL_SASL_STATE, NO_TOKENS = 35, 54, 34, 64
CLUSTER_TEXT, TOPIC_TEXT, GROUP_TEXT = "Cluster authorization failed.", "Topic authorization failed.", "Group authorization failed."
THE_ID = bytes(range(16, 32))
"""Stands for the id of the topic that exists."""


class Row(NamedTuple):
    """A request, what is asked because of it (operation, resource type, name), and the answer. `topic` exists, `missing` does not."""

    key: ApiKey
    version: int
    request: Mapping[str, Any]
    asked: list[str]
    answer: Mapping[str, Any]
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.key.name} v{self.version}{self.note and ' ' + self.note}"


def two(**fields: Any) -> list[dict[str, Any]]:
    """The same for the topic that exists and for the one that does not."""
    return [{"name": name, **fields} for name in ("topic", "missing")]


ASKED_TWO = ["{} TOPIC topic", "{} TOPIC missing"]
CLUSTER_ACTION = f"CLUSTER_ACTION CLUSTER {CLUSTER}"


def of_topics(operation: str) -> list[str]:
    return [each.format(operation) for each in ASKED_TWO]


def of_cluster(operation: str) -> list[str]:
    return [f"{operation} CLUSTER {CLUSTER}"]


BATCH = bytes(a_batch())
REFUSED_PARTITION = {"partition_index": 0, "error_code": TOPIC_REFUSED}

DATA = [
    Row(
        ApiKey.PRODUCE,
        9,
        {"acks": -1, "timeout_ms": 1000, "topic_data": two(partition_data=[{"index": 0, "records": BATCH}])},
        of_topics("WRITE"),
        {"responses": two(partition_responses=[{"index": 0, "error_code": TOPIC_REFUSED, "base_offset": -1}])},
    ),
    Row(
        ApiKey.FETCH,
        12,
        {"max_wait_ms": 0, "topics": [{"topic": name, "partitions": [{"partition_max_bytes": 1000}]} for name in ("topic", "missing")]},
        of_topics("READ"),
        {
            "responses": [
                {"topic": name, "partitions": [{"error_code": TOPIC_REFUSED, "high_watermark": -1, "records": b""}]}
                for name in ("topic", "missing")
            ]
        },
    ),
    Row(
        ApiKey.FETCH,
        12,
        {"replica_id": 1, "topics": [{"topic": "topic", "partitions": [{"partition_max_bytes": 1000}]}]},
        [CLUSTER_ACTION],
        {
            "responses": [
                {"topic": "topic", "partitions": [{"error_code": TOPIC_REFUSED, "high_watermark": -1, "records": b""}]},
            ]
        },
        "of a follower",
    ),
    Row(
        ApiKey.LIST_OFFSETS,
        6,
        {"replica_id": -1, "topics": two(partitions=[{"timestamp": -1}])},
        of_topics("DESCRIBE"),
        {"topics": two(partitions=[REFUSED_PARTITION])},
    ),
    Row(
        ApiKey.LIST_OFFSETS,
        0,
        {"replica_id": -1, "topics": two(partitions=[{"timestamp": -1, "max_num_offsets": 1}])},
        of_topics("DESCRIBE"),
        {"topics": two(partitions=[REFUSED_PARTITION])},
    ),
    Row(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {"replica_id": -1, "topics": [{"topic": name, "partitions": [{}]} for name in ("topic", "missing")]},
        [CLUSTER_ACTION, *of_topics("DESCRIBE")],
        {"topics": [{"topic": name, "partitions": [{"error_code": TOPIC_REFUSED}]} for name in ("topic", "missing")]},
    ),
    Row(
        ApiKey.DELETE_RECORDS,
        2,
        {"topics": two(partitions=[{"offset": 0}]), "timeout_ms": 1000},
        of_topics("DELETE"),
        {"topics": two(partitions=[{"low_watermark": -1, "error_code": TOPIC_REFUSED}])},
    ),
]

TOPICS = [
    Row(
        ApiKey.METADATA,
        9,
        {"topics": two(), "include_cluster_authorized_operations": True, "include_topic_authorized_operations": True},
        [*of_topics("DESCRIBE"), *of_cluster("DESCRIBE")],
        {
            "topics": two(error_code=TOPIC_REFUSED, topic_authorized_operations=NOT_ASKED),
            "cluster_authorized_operations": 0,
        },
        "by name",
    ),
    Row(
        ApiKey.METADATA,
        12,
        {"topics": [{"topic_id": THE_ID, "name": None}]},
        ["DESCRIBE TOPIC topic"],
        {"topics": [{"error_code": TOPIC_REFUSED, "name": None, "topic_id": THE_ID, "topic_authorized_operations": NOT_ASKED}]},
        "by id",
    ),
    Row(ApiKey.METADATA, 12, {"topics": None}, ["DESCRIBE TOPIC topic"], {"topics": []}, "all"),
    Row(ApiKey.METADATA, 0, {"topics": []}, ["DESCRIBE TOPIC topic"], {"topics": []}, "all"),
    Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": two()},
        ["DESCRIBE TOPIC missing", "DESCRIBE TOPIC topic"],
        {
            "topics": [
                {"name": name, "error_code": TOPIC_REFUSED, "topic_authorized_operations": NOT_ASKED} for name in ("missing", "topic")
            ]
        },
        "by name",
    ),
    Row(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": []}, ["DESCRIBE TOPIC topic"], {"topics": []}, "all"),
    Row(
        ApiKey.CREATE_TOPICS,
        7,
        {"topics": two(num_partitions=1, replication_factor=1), "timeout_ms": 1000},
        [
            *of_cluster("CREATE"),
            *(f"{operation} TOPIC {name}" for name in ("topic", "missing") for operation in ("CREATE", "DESCRIBE_CONFIGS")),
        ],
        {
            "topics": two(
                error_code=TOPIC_REFUSED,
                error_message="Authorization failed.",
                topic_config_error_code=TOPIC_REFUSED,
                num_partitions=-1,
                replication_factor=-1,
                configs=[],
            )
        },
    ),
    Row(
        ApiKey.DELETE_TOPICS,
        5,
        {"topic_names": ["topic", "missing"], "timeout_ms": 1000},
        [f"{operation} TOPIC {name}" for name in ("topic", "missing") for operation in ("DESCRIBE", "DELETE")],
        {"responses": two(error_code=TOPIC_REFUSED)},
        "by name",
    ),
    Row(
        ApiKey.DELETE_TOPICS,
        6,
        {"topics": [{"topic_id": THE_ID, "name": None}], "timeout_ms": 1000},
        ["DESCRIBE TOPIC topic", "DELETE TOPIC topic"],
        {"responses": [{"name": None, "topic_id": THE_ID, "error_code": TOPIC_REFUSED}]},
        "by id",
    ),
    Row(
        ApiKey.CREATE_PARTITIONS,
        3,
        {"topics": two(count=2, assignments=None), "timeout_ms": 1000},
        of_topics("ALTER"),
        {"results": two(error_code=TOPIC_REFUSED, error_message="The topic authorization is failed.")},
    ),
    Row(
        ApiKey.ELECT_LEADERS,
        2,
        {"topic_partitions": [{"topic": "topic", "partitions": [0]}], "timeout_ms": 1000},
        of_cluster("ALTER"),
        {
            "error_code": CLUSTER_REFUSED,
            "replica_election_results": [
                {"topic": "topic", "partition_result": [{"partition_id": 0, "error_code": CLUSTER_REFUSED, "error_message": None}]}
            ],
        },
    ),
    Row(
        ApiKey.ELECT_LEADERS,
        2,
        {"topic_partitions": None, "timeout_ms": 1000},
        of_cluster("ALTER"),
        {"error_code": CLUSTER_REFUSED},
        "all",
    ),
    Row(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        {"topics": two(partitions=[{"replicas": [0]}]), "timeout_ms": 1000},
        of_cluster("ALTER"),
        {
            "error_code": CLUSTER_REFUSED,
            "error_message": CLUSTER_TEXT,
            "responses": two(partitions=[{"error_code": CLUSTER_REFUSED, "error_message": CLUSTER_TEXT}]),
        },
    ),
    Row(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        {"topics": two(partition_indexes=[0]), "timeout_ms": 1000},
        of_cluster("DESCRIBE"),
        {"error_code": CLUSTER_REFUSED, "error_message": CLUSTER_TEXT, "topics": two(partitions=[{"partition_index": 0}])},
    ),
    Row(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        {"dirs": [{"path": "/d", "topics": two(partitions=[0])}]},
        of_cluster("ALTER"),
        {
            "results": [
                {"topic_name": name, "partitions": [{"partition_index": 0, "error_code": CLUSTER_REFUSED}]} for name in ("topic", "missing")
            ]
        },
    ),
    Row(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}, of_cluster("DESCRIBE"), {"error_code": CLUSTER_REFUSED, "results": []}),
]
