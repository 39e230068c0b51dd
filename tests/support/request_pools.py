"""Lists values for the fields of random requests, for `request_histories`; data only.

The key of a pool is `API.field`, or else `field`; a pool is a sequence of values, or a function of the random numbers. Repeated values are
chosen more often. In strings, `@` is the prefix of all names of a history. Arrays of structures may have pools of dicts under `API.field`,
which set several fields of an element at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.records.reader import Record
from ottla.protocol.uuid import ZERO_UUID
from tests.support.batches import FIRST_TIMESTAMP, a_batch, a_record, with_bytes
from tests.support.request_symbols import DATA_DIRECTORY, NEXT_EPOCH, SESSION, IdOf

Pool = Sequence[Any] | Callable[[Random], Any]

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
ABSENT_ID: Final = bytes(range(1, 17))
PLACED: Final = ("@a", "@a", "@a", "@b", "@b", "@cfg")
"""Topics that every history begins with; `@cfg` has no records and its configuration changes."""
ODD: Final = ("@gone", "@new", "", ".", "a b", "__consumer_offsets", "@" + "y" * 250)
TOPICS: Final = PLACED * 3 + ODD
IDS: Final = (IdOf("@a"),) * 4 + (IdOf("@b"),) * 3 + (IdOf("@cfg"), IdOf("@gone"), ABSENT_ID, ZERO_UUID)
PARTITIONS: Final = (0, 0, 0, 0, 1, 1, 2, 3, 7, -1, MAX_INT)
OFFSETS: Final = (0, 0, 0, 1, 2, 3, 5, 8, 100, -1, -2, MAX_LONG)
EPOCHS: Final = (-1, -1, -1, -1, 0, 0, 1, 5, -2)
TIMEOUTS: Final = (9_000, 9_000, 9_000, 0, -1)
REPLICA_IDS: Final = (-1, -1, -1, -1, -1, -2, 0, 5)
TIMES: Final = (*(FIRST_TIMESTAMP + at for at in (-1, 0, 1, 5, 10, 20, 49, 51)), 0, MAX_LONG)
USERS: Final = ("@ann", "@ann", "@bob", "@b b", "@ü/%", "")
CODECS_OF_ALL_VERSIONS: Final = ("none", "gzip", "lz4", "snappy")
CODECS: Final = ("none", "none", "none", "gzip", "lz4", "snappy", "zstd")

TOPIC_CONFIGS: Final[tuple[tuple[str, str | None], ...]] = (
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "delete,compact"),
    ("cleanup.policy", "compact, delete"),
    ("cleanup.policy", "nothing"),
    ("cleanup.policy", ""),
    ("cleanup.policy", "delete"),
    ("compression.type", "gzip"),
    ("compression.type", "none"),
    ("compression.type", "GZIP"),
    ("compression.gzip.level", "10"),
    ("compression.zstd.level", "-5"),
    ("delete.retention.ms", ""),
    ("file.delete.delay.ms", "1e3"),
    ("flush.ms", " 5 "),
    ("flush.messages", "0"),
    ("index.interval.bytes", "+5"),
    ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "0:0"),
    ("leader.replication.throttled.replicas", "0:0,1:0"),
    ("leader.replication.throttled.replicas", "0:0,0:0"),
    ("leader.replication.throttled.replicas", "x"),
    ("follower.replication.throttled.replicas", ""),
    ("local.retention.ms", "5"),
    ("max.message.bytes", "200"),
    ("message.downconversion.enable", "false"),
    ("message.format.version", "0.10.0"),
    ("message.format.version", "9.9"),
    ("message.timestamp.difference.max.ms", "9000"),
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.type", "logappendtime"),
    ("min.cleanable.dirty.ratio", "0.25"),
    ("min.cleanable.dirty.ratio", "2"),
    ("min.cleanable.dirty.ratio", "NaN"),
    ("min.cleanable.dirty.ratio", "1e-1"),
    ("min.cleanable.dirty.ratio", "0.5f"),
    ("min.compaction.lag.ms", "10"),
    ("max.compaction.lag.ms", "5"),
    ("min.insync.replicas", "0"),
    ("min.insync.replicas", "1"),
    ("no.such.config", "1"),
    ("preallocate", "TRUE"),
    ("preallocate", "yes"),
    ("remote.storage.enable", "true"),
    ("retention.bytes", None),
    ("retention.bytes", "99999999999"),
    ("retention.ms", "-1"),
    ("retention.ms", "-2"),
    ("retention.ms", "abc"),
    ("retention.ms", "٣"),
    (" retention.ms", "1"),
    ("segment.bytes", "13"),
    ("segment.bytes", "2147483648"),
    ("segment.bytes", "1_000"),
    ("segment.ms", "0"),
    ("segment.jitter.ms", "7"),
    ("unclean.leader.election.enable", "true"),
    ("", "x"),
)
GOOD_TOPIC_CONFIGS: Final = (
    ("cleanup.policy", "compact"),
    ("compression.type", "gzip"),
    ("compression.zstd.level", "-5"),
    ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "0:0"),
    ("message.downconversion.enable", "false"),
    ("min.cleanable.dirty.ratio", "0.5f"),
    ("retention.ms", "٣"),
)
"""Fields with several bad values, for which the brokers' texts differ."""
BROKER_CONFIGS: Final[tuple[tuple[str, str | None], ...]] = (
    ("background.threads", "11"),
    ("background.threads", "1000"),
    ("broker.id", "7"),
    ("log.cleaner.threads", "2"),
    ("log.cleaner.threads", "9"),
    ("log.cleaner.dedupe.buffer.size", "1"),
    ("log.dirs", "elsewhere"),
    ("log.flush.interval.ms", "100000"),
    ("log.retention.ms", "-1"),
    ("log.retention.ms", "0"),
    ("log.segment.bytes", "999999999"),
    ("log.segment.bytes", "13"),
    ("max.connections.per.ip.overrides", "127.0.0.9:5"),
    ("max.connections", "100000"),
    ("metric.reporters", ""),
    ("num.io.threads", "12"),
    ("num.io.threads", "100"),
    ("num.recovery.threads.per.data.dir", "2"),
    ("num.replica.fetchers", "2"),
    ("num.replica.fetchers", "two"),
    ("leader.replication.throttled.rate", "1000000"),
    ("leader.replication.throttled.rate", "-1"),
    ("follower.replication.throttled.rate", "1000000"),
    ("log.cleanup.policy", "compact"),
    ("log.cleanup.policy", "compact,delete"),
    ("log.message.timestamp.difference.max.ms", "9000000000000"),
    ("log.roll.hours", "5"),
    ("log.roll.ms", "3600000"),
    ("no.such.config", "1"),
    ("ssl.keystore.password", "secret"),
    ("ssl.keystore.type", "PEM"),
    ("listener.name.plaintext.max.connections", "5000"),
    ("listener.name.plaintext.ssl.keystore.type", "PEM"),
    ("listener.name.other.max.connections", "5000"),
    ("unclean.leader.election.enable", "false"),
    ("unclean.leader.election.enable", "maybe"),
    ("log.retention.bytes", "99999999999"),
    ("log.local.retention.ms", "5"),
    ("transaction.partition.verification.enable", "true"),
    ("producer.id.expiration.ms", "86400000"),
    ("", "x"),
)
GOOD_BROKER_CONFIGS: Final = (
    ("log.cleanup.policy", "compact"),
    ("log.flush.interval.ms", "100000"),
    ("log.retention.bytes", "99999999999"),
    ("log.retention.ms", "-1"),
    ("log.roll.ms", "3600000"),
    ("log.segment.bytes", "999999999"),
    ("no.such.config", "1"),
    ("unclean.leader.election.enable", "false"),
)
LOGGER_CONFIGS: Final[tuple[tuple[str, str | None], ...]] = (("root", "WARN"), ("root", "LOUD"), ("no.such.Logger", "INFO"), ("", "INFO"))
DESCRIBED_KEYS: Final = ("retention.ms", "cleanup.policy", "log.retention.ms", "num.io.threads", "no.such.config", "", "broker.id", "root")
"""Of topics and brokers alike: one that a resource does not have is left out."""
QUOTAS: Final = (
    "producer_byte_rate",
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
    "connection_creation_rate",
    "SCRAM-SHA-256",
    "no_such_quota",
    "",
)
ENTITY_TYPES: Final = ("user", "user", "client-id", "client-id", "ip", "ip", "no-such", "")
ENTITY_NAMES: Final = ("@ann", "@ann", "@bob", "@b b", "@c*?/%", "10.1.2.3", "10.1.2.3", "", "<default>", None, None)
ACL_ENUM: Final = (0, 1, 1, 2, 2, 3, 3, 4, 5, 12, -1)


def some_batches(random: Random) -> bytes:
    """Records of a partition as a producer may send them; mostly one good batch."""
    kind = random.randrange(24)
    if kind == 0:
        return b""
    if kind == 1:
        return bytes(_batch(random, codecs=CODECS_OF_ALL_VERSIONS) + _batch(random))
    if kind == 2:
        return bytes(_batch(random)[:-1])
    if kind == 3:
        batch = _batch(random)
        batch[-1] ^= 1
        return bytes(batch)
    if kind == 4:
        return bytes(with_bytes(_batch(random), 57, b"\0\0\0\0"))
    if kind == 5:
        return bytes(_batch(random, base_offset=random.choice((1, 77, -1))))
    return bytes(_batch(random))


def _batch(random: Random, base_offset: int = 0, codecs: Sequence[str] = CODECS) -> bytearray:
    is_idempotent = random.random() < 0.4
    return a_batch(
        [_record(random, at) for at in range(random.choice((1, 1, 2, 3, 4)))],
        random.choice(codecs),
        base_offset,
        producer_id=random.choice((700, 700, 701)) if is_idempotent else -1,
        producer_epoch=random.choice((0, 0, 0, 1, 2)) if is_idempotent else None,
        base_sequence=random.choice((0, 0, 1, 2, 3, 4, 5, MAX_INT)) if is_idempotent else None,
        leader_epoch=random.choice((-1, -1, 0, 9)),
    )


def _record(random: Random, at: int) -> Record:
    headers = random.choice(((), (), ((b"h", b"1"),), ((b"", None), (b"h", b""))))
    return a_record(
        at,
        FIRST_TIMESTAMP + random.randrange(50) if random.random() < 0.95 else -1,
        random.choice((b"k", b"k", b"l", b"", b"", None)),
        random.choice((b"v", b"value " * random.randrange(1, 40), b"", None)),
        headers,
    )


def _entries(configs: Sequence[tuple[str, str | None]]) -> tuple[dict[str, Any], ...]:
    return tuple({"name": name, "value": value} for name, value in configs)


POOLS: Final[Mapping[str, Pool]] = {
    # Names, numbers and times that mean the same in every request.
    "topic": TOPICS,
    "name": TOPICS,
    "topic_name": TOPICS,
    "topic_names": TOPICS,
    "topic_id": IDS,
    "partition": PARTITIONS,
    "partitions": PARTITIONS,
    "partition_index": PARTITIONS,
    "partition_indexes": PARTITIONS,
    "index": PARTITIONS,
    "replica_id": REPLICA_IDS,
    "current_leader_epoch": EPOCHS,
    "leader_epoch": EPOCHS,
    "timeout_ms": TIMEOUTS,
    "isolation_level": (0, 1),
    "broker_id": (0, 0, 5, -1),
    "broker_epoch": (-1, 1),
    "CONTROLLED_SHUTDOWN.broker_id": (5, -1),
    "controller_id": (0, 5),
    "controller_epoch": (0, -1),
    "max_wait_ms": (0, 0, 0, 20, -1),
    # Produce and Fetch
    "PRODUCE.name": tuple(name for name in TOPICS if name != "@cfg"),
    "PRODUCE.transactional_id": (None,),
    "PRODUCE.acks": (-1, -1, -1, 1, 1, 1, 0, 2, -2),
    "PRODUCE.records": some_batches,
    "FETCH.min_bytes": (0, 1, 1, 1, -1, MAX_INT),
    "FETCH.topic_id": tuple(each for each in IDS if each != ZERO_UUID),
    "FETCH.max_bytes": (MAX_INT, MAX_INT, MAX_INT, 1, 0),
    "FETCH.partition_max_bytes": (1_000_000, 1_000_000, 1_000_000, 1_000_000, 1, 0, 300),
    "FETCH.fetch_offset": OFFSETS,
    "FETCH.last_fetched_epoch": (-1, -1, -1, -1, 0, 1),
    "FETCH.log_start_offset": (-1, -1, 0, 3),
    "FETCH.session_id": (SESSION, SESSION, SESSION, SESSION, 0, 12345),
    "FETCH.session_epoch": (-1, -1, 0, 0, NEXT_EPOCH, NEXT_EPOCH, NEXT_EPOCH, NEXT_EPOCH, 1, 7, -2),
    "FETCH.rack_id": ("", "r0", "r9"),
    "FETCH.cluster_id": (None, None, "other"),
    "FETCH.replica_epoch": (-1, 3),
    "FETCH.replica_directory_id": (ZERO_UUID, ABSENT_ID),
    # Offsets
    "LIST_OFFSETS.timestamp": (-1, -1, -2, -2, -3, -4, -5, -6, *TIMES),
    "LIST_OFFSETS.max_num_offsets": (1, 1, 5, 0),
    "DELETE_RECORDS.offset": OFFSETS,
    # Topics
    "METADATA.name": (*TOPICS, None),
    "METADATA.topic_id": (*(ZERO_UUID,) * 20, *IDS),
    "CREATE_TOPICS.name": ("@n1", "@n1", "@n2", "@n.x", "@n_x", "@a", "@gone", "", "..", "@ü", "@" + "y" * 250, "__cluster_metadata"),
    "CREATE_TOPICS.num_partitions": (-1, -1, -1, 1, 2, 0, -2),
    "CREATE_TOPICS.replication_factor": (-1, -1, -1, -1, 1, 1, 2, 0, -2),
    "CREATE_TOPICS.assignments": ({}, {}, {"partition_index": 0, "broker_ids": [0]}, {"partition_index": 1, "broker_ids": [0]}),
    "CREATE_TOPICS.partition_index": (0, 0, 1, 5),
    "CREATE_TOPICS.broker_ids": (0, 0, 0, 1, -1),
    "CREATE_TOPICS.configs": _entries(TOPIC_CONFIGS),
    "CREATE_PARTITIONS.count": (1, 2, 3, 4, 5, 0, -1),
    "CREATE_PARTITIONS.broker_ids": (0, 0, 0, 1),
    "CREATE_PARTITIONS.name": (*PLACED, "@n1", "@n2", "@gone", "@new"),
    "DELETE_TOPICS.name": (None, None, None, None, "@n1", "@n2", "@n.x", "@new", "", "a b", "@b"),
    "DELETE_TOPICS.topic_names": ("@n1", "@n1", "@n2", "@n2", "@n.x", "@n_x", "@gone", "@new", "", ".", "a b", "@b"),
    "DELETE_TOPICS.topic_id": (ZERO_UUID, ZERO_UUID, IdOf("@n1"), IdOf("@n2"), IdOf("@gone"), ABSENT_ID),
    # Configurations
    "resource_type": (2, 2, 2, 2, 4, 4, 4, 8, 16, 0, 3, 99, -1),
    "resource_name": ("@cfg", "@cfg", "@cfg", "@new", "@gone", "a b", "0", "0", "0", "", "", "00", "5", "zero", "-1", "+0", " 0"),
    "DESCRIBE_CONFIGS.resource_name": ("@cfg", "@cfg", "@cfg", "@a", "@b", "@new", "@gone", "a b", "__consumer_offsets", "0", "0", "", "5"),
    "DESCRIBE_CONFIGS.configuration_keys": DESCRIBED_KEYS,
    "config_operation": (0, 0, 0, 1, 1, 2, 2, 3, 3, 4, -1),
    # Log directories
    "ALTER_REPLICA_LOG_DIRS.path": (DATA_DIRECTORY, DATA_DIRECTORY, "/no/such/directory", "relative", ""),
    # Elections and moves
    "ELECT_LEADERS.election_type": (0, 0, 0, 1, 1, 2, -1),
    "ALTER_PARTITION_REASSIGNMENTS.replicas": (0, 0, 0, 0, 1, -1),
    # Producer ids
    "INIT_PRODUCER_ID.transactional_id": (None, None, None, ""),
    "INIT_PRODUCER_ID.transaction_timeout_ms": (1000, 0, -1, MAX_INT),
    "INIT_PRODUCER_ID.producer_id": (-1, -1, 5, -2),
    "INIT_PRODUCER_ID.producer_epoch": (-1, -1, 5, 32767),
    # Quotas and credentials
    "entity_type": ENTITY_TYPES,
    "entity_name": ENTITY_NAMES,
    "match": tuple(name for name in ENTITY_NAMES if name != ""),
    "match_type": (0, 0, 0, 1, 1, 2, 2, 3, -1),
    "key": QUOTAS,
    "value": (1e9, 1e9, 5e12, 100.0, 0.0, -1.0, 1.5, 1e-9, 12345678.9, 1e19, float("nan"), float("inf")),
    "DESCRIBE_USER_SCRAM_CREDENTIALS.name": USERS,
    "ALTER_USER_SCRAM_CREDENTIALS.name": USERS,
    "mechanism": (1, 1, 1, 2, 2, 0, 3, -1),
    "iterations": (4096, 4096, 8192, 16384, 4095, 16385, 0, -1),
    "salt": (b"salt", b"", bytes(200)),
    "salted_password": (b"password", b"p" * 64),
    # The rest
    "DESCRIBE_CLUSTER.endpoint_type": (1, 1, 1, 2, 0, 3, -1),
    "FIND_COORDINATOR.key": ("@g", "@h", ""),
    "FIND_COORDINATOR.coordinator_keys": ("@g", "@h", ""),
    "FIND_COORDINATOR.key_type": (0, 0, 0, 0, 2, 3, -1),
    "client_software_name": ("tests", "a.b-c", "-a", "", "a b", "ü"),
    "client_software_version": ("1", "1.0.0", "1-", "", "v 1"),
    "UPDATE_FEATURES.feature": ("metadata.version", "kraft.version", "group.version", "", "@f"),
    "UPDATE_FEATURES.max_version_level": (0, 1, 20, -1),
    "UPDATE_FEATURES.upgrade_type": (1, 1, 2, 3, 0, 9),
    # Access control
    "resource_type_filter": ACL_ENUM,
    "resource_pattern_type": ACL_ENUM,
    "pattern_type_filter": ACL_ENUM,
    "operation": ACL_ENUM,
    "permission_type": ACL_ENUM,
    "resource_name_filter": ("@a", "*", "", None),
    "principal_filter": ("User:ann", "User:*", "nobody", "", None),
    "host_filter": ("*", "10.0.0.1", "", None),
    "CREATE_ACLS.resource_type": ACL_ENUM,
    "CREATE_ACLS.resource_name": ("@a", "*", "kafka-cluster", ""),
    "principal": ("User:ann", "User:*", "nobody", ""),
    "host": ("*", "10.0.0.1", ""),
    "mechanism_name": ("PLAIN",),
    "SASL_HANDSHAKE.mechanism": ("PLAIN", "SCRAM-SHA-256", "", "NONE"),
    "auth_bytes": (b"", b"\0a\0b"),
    "owner_principal_type": ("User", ""),
    "owner_principal_name": ("@ann", "", None),
    "principal_type": ("User", "Other", ""),
    "principal_name": ("@ann", "", "ANONYMOUS"),
    "max_lifetime_ms": (-1, 1000, 0),
    "hmac": (b"", b"1234"),
    "renew_period_ms": (-1, 1000),
    "expiry_time_period_ms": (-1, 1000),
    # Between brokers: nothing of it may pass, so epochs are old ones.
    "is_kraft_controller": (False,),
    "type": (0, 1, 2),
    "new_isr": (0, 0, 5),
    "leader_recovery_state": (0, 1),
    "partition_epoch": (0, 1, 9),
    "leader": (0, 5),
    "isr": (0, 5),
    "replicas": (0, 5),
    "adding_replicas": (5,),
    "removing_replicas": (5,),
    "offline_replicas": (5,),
    "zk_version": (0, 1),
    "host_name": ("127.0.0.1",),
    "port": (9,),
    "id": (0, 5),
    "v0_host": ("127.0.0.1",),
    "v0_port": (9,),
    "listener": ("PLAINTEXT",),
    "security_protocol": (0,),
    "rack": (None, "r0"),
    # Groups of the new protocol
    "group_id": ("@g", ""),
    "group_ids": ("@g", "@h", ""),
    "member_id": ("", "@m"),
    "member_epoch": (0, -1, -2, 5),
    "instance_id": (None, "i"),
    "rebalance_timeout_ms": (-1, 1000),
    "subscribed_topic_names": TOPICS,
    "server_assignor": (None, "uniform"),
    "rack_id": (None, "r0"),
}

APIS: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 16,
    ApiKey.FETCH: 24,
    ApiKey.LIST_OFFSETS: 12,
    ApiKey.METADATA: 8,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 5,
    ApiKey.CREATE_TOPICS: 8,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.CREATE_PARTITIONS: 5,
    ApiKey.DELETE_RECORDS: 5,
    ApiKey.DESCRIBE_CONFIGS: 8,
    ApiKey.ALTER_CONFIGS: 6,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 10,
    ApiKey.DESCRIBE_LOG_DIRS: 3,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 3,
    ApiKey.DESCRIBE_CLUSTER: 2,
    ApiKey.DESCRIBE_PRODUCERS: 4,
    ApiKey.ELECT_LEADERS: 3,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 4,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 2,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.ALTER_CLIENT_QUOTAS: 5,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 5,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 4,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 4,
    ApiKey.UPDATE_FEATURES: 1,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.DESCRIBE_ACLS: 1,
    ApiKey.CREATE_ACLS: 1,
    ApiKey.DELETE_ACLS: 1,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.SASL_AUTHENTICATE: 1,
    ApiKey.CREATE_DELEGATION_TOKEN: 1,
    ApiKey.RENEW_DELEGATION_TOKEN: 1,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 1,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 1,
    ApiKey.CONTROLLED_SHUTDOWN: 1,
    ApiKey.ALTER_PARTITION: 1,
    ApiKey.ALLOCATE_PRODUCER_IDS: 1,
    ApiKey.LEADER_AND_ISR: 1,
    ApiKey.STOP_REPLICA: 1,
    ApiKey.UPDATE_METADATA: 1,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
}
"""How often each API is asked for."""

FIRST_VERSIONS: Final[Mapping[ApiKey, int]] = {ApiKey.PRODUCE: 3, ApiKey.FETCH: 4}
"""Below, what differs is documented."""
