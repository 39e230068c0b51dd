"""Lists requests of all APIs with the rights that each needs: exactly these suffice, and without any one of them something is refused.

`rights_player` sends them; `tests/recorded/rights.jsonl` has the answers of Apache Kafka 3.9.1. Requests are those of `refusals`, but one
that succeeds must leave the broker as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ottla.protocol.api_keys import ApiKey
from tests.support.batches import a_batch
from tests.support.refusals import CLUSTER, DATA, TOPICS, Row, two
from tests.support.refusals_of_groups_and_administration import CONFIGS, CONTROL, GROUPS, SECURITY, TRANSACTIONS

DOOMED_ID = bytes(range(32, 48))
"""Stands for the id of the topic that is deleted by its id."""

Rights = tuple[str, ...]
"""Each `OPERATION TYPE name`."""
NO_RIGHTS: Rights = ()


class Case(NamedTuple):
    """A request. Each of `suffices` is a set of rights with which nothing is refused; `partial` are other sets that are asked with."""

    key: ApiKey
    version: int
    request: Mapping[str, Any]
    suffices: tuple[Rights, ...]
    partial: tuple[Rights, ...] = ()
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.key.name} v{self.version}{self.note and ' ' + self.note}"

    def sets_of_rights(self) -> Iterator[Rights]:
        """With which the request is asked, in this order: none, all that it needs, all but one, and other ones.

        A topic that was deleted may be gone when the next question comes, so other rights come before those that delete it.
        """
        first, last = (self.partial, ()) if self.key == ApiKey.DELETE_TOPICS else ((), self.partial)
        yield NO_RIGHTS
        yield from first
        yield from self.suffices
        for rights in self.suffices:
            if len(rights) > 1:
                for lacking in rights:
                    yield tuple(each for each in rights if each != lacking)
        yield from last


def on_cluster(operation: str) -> Rights:
    return (f"{operation} CLUSTER {CLUSTER}",)


def on_topics(operation: str, *names: str) -> Rights:
    return tuple(f"{operation} TOPIC {name}" for name in names or ("topic", "missing"))


ALTER, DESCRIBE, ACTION = on_cluster("ALTER"), on_cluster("DESCRIBE"), on_cluster("CLUSTER_ACTION")
READ_GROUP, DESCRIBE_GROUP = ("READ GROUP g",), ("DESCRIBE GROUP g",)
WRITE_ID, DESCRIBE_ID = ("WRITE TRANSACTIONAL_ID t",), ("DESCRIBE TRANSACTIONAL_ID t",)

SUFFICES: Mapping[str, tuple[Rights, ...]] = {
    "PRODUCE v9": (on_topics("WRITE"),),
    "FETCH v12": (on_topics("READ"),),
    "FETCH v12 of a follower": (ACTION,),
    "LIST_OFFSETS v6": (on_topics("DESCRIBE"),),
    "LIST_OFFSETS v0": (on_topics("DESCRIBE"),),
    "OFFSET_FOR_LEADER_EPOCH v4": (ACTION, on_topics("DESCRIBE")),
    "DELETE_RECORDS v2": (on_topics("DELETE"),),
    "METADATA v9 by name": (on_topics("DESCRIBE") + DESCRIBE,),
    "METADATA v12 by id": (on_topics("DESCRIBE", "topic"),),
    "METADATA v12 all": (on_topics("DESCRIBE", "topic"),),
    "METADATA v0 all": (on_topics("DESCRIBE", "topic"),),
    "DESCRIBE_TOPIC_PARTITIONS v0 by name": (on_topics("DESCRIBE"),),
    "DESCRIBE_TOPIC_PARTITIONS v0 all": (on_topics("DESCRIBE", "topic"),),
    "CREATE_TOPICS v7": (
        (*on_cluster("CREATE"), "DESCRIBE_CONFIGS TOPIC new"),
        (*on_topics("CREATE", "topic", "new"), "DESCRIBE_CONFIGS TOPIC new"),
    ),
    "DELETE_TOPICS v5 by name": (on_topics("DELETE", "doomed-by-name", "missing"),),
    "DELETE_TOPICS v6 by id": (on_topics("DELETE", "doomed-by-id"),),
    "CREATE_PARTITIONS v3": (on_topics("ALTER"),),
    "ELECT_LEADERS v2": (ALTER,),
    "ELECT_LEADERS v2 all": (ALTER,),
    "ALTER_PARTITION_REASSIGNMENTS v0": (ALTER,),
    "LIST_PARTITION_REASSIGNMENTS v0": (DESCRIBE,),
    "ALTER_REPLICA_LOG_DIRS v2": (ALTER,),
    "DESCRIBE_LOG_DIRS v4": (DESCRIBE,),
    "OFFSET_COMMIT v8": (READ_GROUP + on_topics("READ"),),
    "OFFSET_FETCH v7": (DESCRIBE_GROUP + on_topics("DESCRIBE"),),
    "OFFSET_FETCH v9 of two groups": ((*DESCRIBE_GROUP, "DESCRIBE GROUP h", "DESCRIBE TOPIC topic"),),
    "OFFSET_FETCH v0 from the store": (DESCRIBE_GROUP + on_topics("DESCRIBE"),),
    "FIND_COORDINATOR v2 of a group": (DESCRIBE_GROUP,),
    "FIND_COORDINATOR v6 of a transaction": (DESCRIBE_ID,),
    "FIND_COORDINATOR v6 of a share group": (ACTION,),
    "JOIN_GROUP v9": (READ_GROUP,),
    "HEARTBEAT v4": (READ_GROUP,),
    "LEAVE_GROUP v5": (READ_GROUP,),
    "SYNC_GROUP v5": (READ_GROUP,),
    "DESCRIBE_GROUPS v5": ((*DESCRIBE_GROUP, "DESCRIBE GROUP h"),),
    "LIST_GROUPS v5": (DESCRIBE, DESCRIBE_GROUP),
    "DELETE_GROUPS v2": (("DELETE GROUP h",),),
    "OFFSET_DELETE v0": (("DELETE GROUP g", *on_topics("READ")),),
    "CONSUMER_GROUP_HEARTBEAT v0": (),
    "CONSUMER_GROUP_DESCRIBE v0": (),
    "TXN_OFFSET_COMMIT v3": (WRITE_ID + READ_GROUP + on_topics("READ"),),
    "INIT_PRODUCER_ID v5": (WRITE_ID,),
    "INIT_PRODUCER_ID v5 idempotent": (on_cluster("IDEMPOTENT_WRITE"), on_topics("WRITE", "some-other-topic")),
    "ADD_PARTITIONS_TO_TXN v3": (WRITE_ID + on_topics("WRITE"),),
    "ADD_PARTITIONS_TO_TXN v4 of brokers": (ACTION,),
    "ADD_OFFSETS_TO_TXN v3": (WRITE_ID + READ_GROUP,),
    "DESCRIBE_TRANSACTIONS v0": (DESCRIBE_ID,),
    "WRITE_TXN_MARKERS v1": (ALTER, ACTION),
    "LIST_TRANSACTIONS v1": (DESCRIBE_ID,),
    "END_TXN v3": (WRITE_ID,),
    "DESCRIBE_PRODUCERS v0": (on_topics("READ"),),
    "DESCRIBE_CONFIGS v4": ((*on_cluster("DESCRIBE_CONFIGS"), "DESCRIBE_CONFIGS TOPIC topic"),),
    "ALTER_CONFIGS v2": ((*on_cluster("ALTER_CONFIGS"), "ALTER_CONFIGS TOPIC topic"),),
    "INCREMENTAL_ALTER_CONFIGS v1": ((*on_cluster("ALTER_CONFIGS"), "ALTER_CONFIGS TOPIC topic"),),
    "INCREMENTAL_ALTER_CONFIGS v1 of what a broker could not become": (),
    "DESCRIBE_CLIENT_QUOTAS v1": (on_cluster("DESCRIBE_CONFIGS"),),
    "ALTER_CLIENT_QUOTAS v1": (on_cluster("ALTER_CONFIGS"),),
    "DESCRIBE_USER_SCRAM_CREDENTIALS v0": (DESCRIBE,),
    "ALTER_USER_SCRAM_CREDENTIALS v0": (ALTER,),
    "LEADER_AND_ISR v7": (ACTION,),
    "LEADER_AND_ISR v1": (ACTION,),
    "STOP_REPLICA v4": (ACTION,),
    "UPDATE_METADATA v8": (ACTION,),
    "CONTROLLED_SHUTDOWN v3": (ACTION,),
    "ALTER_PARTITION v2": (ACTION,),
    "ALLOCATE_PRODUCER_IDS v0": (ACTION,),
    "UPDATE_FEATURES v1": (ALTER,),
    "DESCRIBE_CLUSTER v1": (DESCRIBE,),
    "DESCRIBE_ACLS v3": (DESCRIBE,),
    "CREATE_ACLS v3": (ALTER,),
    "DELETE_ACLS v3": (ALTER,),
}

PARTIAL: Mapping[str, tuple[Rights, ...]] = {
    "DELETE_TOPICS v6 by id": (on_topics("DESCRIBE", "doomed-by-id"),),
    "DESCRIBE_TRANSACTIONS v0": (WRITE_ID,),
    "CREATE_TOPICS v7": (on_topics("DESCRIBE", "topic", "new"),),
    "OFFSET_COMMIT v8": (("DESCRIBE GROUP g", *on_topics("DESCRIBE")),),
}
"""Other sets of rights that a request is asked with."""

OF_USER = {"resource_type_filter": 2, "pattern_type_filter": 3, "principal_filter": "User:u", "operation": 3, "permission_type": 3}
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "METADATA v9 by name": {"allow_auto_topic_creation": False},
    "CREATE_TOPICS v7": {
        "topics": [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("topic", "new")],
        "validate_only": True,
    },
    "DELETE_TOPICS v5 by name": {"topic_names": ["doomed-by-name", "missing"], "timeout_ms": 30_000},
    "DELETE_TOPICS v6 by id": {"topics": [{"topic_id": DOOMED_ID, "name": None}], "timeout_ms": 30_000},
    "CREATE_PARTITIONS v3": {"validate_only": True},
    "DESCRIBE_LOG_DIRS v4": {"topics": [{"topic": "topic", "partitions": [0]}]},
    "DELETE_GROUPS v2": {"groups_names": ["h"]},
    "TXN_OFFSET_COMMIT v3": {"producer_id": 999_999},
    "ADD_PARTITIONS_TO_TXN v3": {"v3_and_below_producer_id": 999_999},
    "ADD_OFFSETS_TO_TXN v3": {"producer_id": 999_999},
    "END_TXN v3": {"producer_id": 999_999},
    "DESCRIBE_CONFIGS v4": {
        "resources": [
            {"resource_type": 2, "resource_name": "topic", "configuration_keys": ["retention.ms"]},
            {"resource_type": 4, "resource_name": "0", "configuration_keys": ["num.io.threads"]},
            {"resource_type": 8, "resource_name": "0", "configuration_keys": ["root"]},
        ]
    },
    "ALTER_CONFIGS v2": {"validate_only": True},
    "INCREMENTAL_ALTER_CONFIGS v1": {
        "resources": [
            {"resource_type": 2, "resource_name": "topic", "configs": [{"name": "retention.ms", "value": "1"}]},
            {"resource_type": 4, "resource_name": "0", "configs": [{"name": "num.io.threads", "value": "8"}]},
            {"resource_type": 8, "resource_name": "0", "configs": [{"name": "root", "value": "INFO"}]},
        ],
        "validate_only": True,
    },
    "ALTER_CLIENT_QUOTAS v1": {"validate_only": True},
    "UPDATE_METADATA v8": {"controller_epoch": 0, "topic_states": []},
    "CONTROLLED_SHUTDOWN v3": {"broker_epoch": 0},
    "DESCRIBE_ACLS v3": OF_USER,
    "DELETE_ACLS v3": {"filters": [OF_USER]},
}
"""Fields in which requests differ from those of `refusals`, because here they may succeed."""

TOKENS = frozenset(
    {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN}
)
"""APIs whose rights depend on the owner of a token. `refusals` has a client without tokens."""
WITHOUT_RIGHTS = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.ENVELOPE})
"""APIs for which no right is asked; Envelope closes every connection."""
OWNER = "carol"
"""The owner of a token that the client has nothing to do with."""
OF_BOB = {"owner_principal_type": "User", "owner_principal_name": "bob"}


def _case(row: Row) -> Case:
    return Case(row.key, row.version, {**row.request, **CHANGES.get(row.name, {})}, SUFFICES[row.name], PARTIAL.get(row.name, ()), row.note)


def _creation(name: str) -> Mapping[str, Any]:
    return {"topics": [{"name": name}], "allow_auto_topic_creation": True}


CASES = [
    *(
        _case(row)
        for row in [*DATA, *TOPICS, *GROUPS, *TRANSACTIONS, *CONFIGS, *CONTROL, *SECURITY]
        if row.key not in WITHOUT_RIGHTS | TOKENS
    ),
    Case(
        ApiKey.METADATA,
        9,
        _creation("made"),
        (("DESCRIBE TOPIC made", "CREATE TOPIC made"),),
        note="that creates a topic",
    ),
    Case(
        ApiKey.METADATA,
        9,
        _creation("made-by-cluster"),
        (("DESCRIBE TOPIC made-by-cluster", *on_cluster("CREATE")),),
        note="that creates any topic",
    ),
    Case(
        ApiKey.PRODUCE,
        9,
        {
            "acks": -1,
            "timeout_ms": 1000,
            "transactional_id": "t",
            "topic_data": two(
                partition_data=[
                    {"index": 0, "records": bytes(a_batch(producer_id=999_999, producer_epoch=0, base_sequence=0, transactional=True))}
                ]
            ),
        },
        (WRITE_ID + on_topics("WRITE"),),
        note="in a transaction",
    ),
    Case(
        ApiKey.PRODUCE,
        9,
        {"acks": 0, "timeout_ms": 1000, "topic_data": two(partition_data=[{"index": 0, "records": bytes(a_batch())}])},
        (),
        note="without acknowledgement",
    ),
    Case(ApiKey.METADATA, 12, {"topics": None}, (on_topics("READ", "topic"),), note="all, with an implied right"),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {"resources": [{"resource_type": 2, "resource_name": "topic", "configuration_keys": ["retention.ms"]}]},
        (("ALTER_CONFIGS TOPIC topic",),),
        note="with an implied right",
    ),
    Case(ApiKey.CREATE_DELEGATION_TOKEN, 3, {}, (), note="for the client"),
    Case(ApiKey.CREATE_DELEGATION_TOKEN, 3, OF_BOB, (("CREATE_TOKENS USER User:bob",),), note="for another user"),
    Case(ApiKey.RENEW_DELEGATION_TOKEN, 2, {"hmac": b"unknown"}, ()),
    Case(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, {"hmac": b"unknown"}, ()),
    Case(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        3,
        {"owners": [{"principal_type": "User", "principal_name": OWNER}]},
        (("DESCRIBE_TOKENS USER User:carol",), ("DESCRIBE DELEGATION_TOKEN *",)),
    ),
    Case(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None}, (("DESCRIBE_TOKENS USER User:carol",),), note="all"),
]
