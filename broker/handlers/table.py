"""Which APIs this broker implements: the source of ApiVersions, of what the dispatcher lets in, and of docs/protocol-support.md.

Each has its module `broker/handlers/<room>/<api>.py` with `handle_<api>`, which is given a decoded message, or with `handle_<api>_frame`,
which reads the frame itself. Modules are imported when the first request of their API comes: the broker is ready early and pays only
for what its clients use.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from broker.network.connection import Connection
    from broker.network.request_channel import Answer
    from broker.request.context import RequestContext
    from broker.request.services import Services

Handler = Callable[[Any, "RequestContext"], Any]
"""(request, context) -> the response message, a coroutine of it, or an Answer of the network floor."""

FrameHandler = Callable[[memoryview, int, int, int, "Connection", "Services"], "Answer"]
"""(frame, where the body begins, version, correlation id, connection, services) -> Answer. Raises ProtocolError for a frame that is no such
request."""

ROOMS: dict[str, frozenset[ApiKey]] = {
    "": frozenset(
        {
            ApiKey.API_VERSIONS,
        }
    ),
    "configs": frozenset(
        {
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            ApiKey.ALTER_CLIENT_QUOTAS,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        }
    ),
    "control": frozenset(
        {
            ApiKey.LEADER_AND_ISR,
            ApiKey.STOP_REPLICA,
            ApiKey.UPDATE_METADATA,
            ApiKey.CONTROLLED_SHUTDOWN,
            ApiKey.ALTER_PARTITION,
            ApiKey.UPDATE_FEATURES,
            ApiKey.DESCRIBE_CLUSTER,
            ApiKey.ALLOCATE_PRODUCER_IDS,
        }
    ),
    "data": frozenset(
        {
            ApiKey.PRODUCE,
            ApiKey.FETCH,
            ApiKey.LIST_OFFSETS,
            ApiKey.DELETE_RECORDS,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
        }
    ),
    "groups": frozenset(
        {
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.FIND_COORDINATOR,
            ApiKey.JOIN_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.LIST_GROUPS,
            ApiKey.DELETE_GROUPS,
            ApiKey.OFFSET_DELETE,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
        }
    ),
    "security": frozenset(
        {
            ApiKey.SASL_HANDSHAKE,
            ApiKey.DESCRIBE_ACLS,
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
            ApiKey.SASL_AUTHENTICATE,
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
        }
    ),
    "topics": frozenset(
        {
            ApiKey.METADATA,
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.ELECT_LEADERS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        }
    ),
    "transactions": frozenset(
        {
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.END_TXN,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.DESCRIBE_TRANSACTIONS,
            ApiKey.LIST_TRANSACTIONS,
            ApiKey.WRITE_TXN_MARKERS,
        }
    ),
}
"""The folder below `broker/handlers` in which the handler of an API stands."""

UNLISTED: frozenset[ApiKey] = frozenset({ApiKey.DESCRIBE_TOPIC_PARTITIONS})
"""Served to a client that asks, but not in ApiVersions, because Apache Kafka 3.9 in ZooKeeper mode does not list it and clients choose by
that list."""

_ROOM_OF = {key: room for room, keys in ROOMS.items() for key in keys}

SERVED = frozenset(_ROOM_OF)

IMPLEMENTED = SERVED - UNLISTED
"""The APIs that ApiVersions lists."""


def module_of(key: ApiKey) -> str:
    """The dotted name of the module in which the handler of an implemented API stands."""
    return ".".join(filter(None, ("broker.handlers", _ROOM_OF[key], key.name.lower())))


def handlers_of(key: ApiKey) -> tuple[Handler | None, FrameHandler | None]:
    """The handler of messages of an implemented API, or the one that reads a frame itself; the other of the two is None."""
    name = key.name.lower()
    module = import_module(module_of(key))
    return getattr(module, f"handle_{name}", None), getattr(module, f"handle_{name}_frame", None)
