"""Lists the APIs that this broker implements: for the dispatcher, and for docs/protocol-support.md.

Each API has a module `broker/handlers/<folder>/<api>.py` with `handle_<api>`, which gets a decoded message, or `handle_<api>_frame`, which
reads the frame itself. A module is imported for the first request of its API. So the broker is ready early, and loads only the handlers
that its clients use.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.registry import ZOOKEEPER_MODE_APIS

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.network.request_channel import Answer
    from ottla.broker.request.context import RequestContext
    from ottla.broker.request.services import Services

Handler = Callable[[Any, "RequestContext"], Any]
"""Called with request and context: a function or a coroutine. The result is the response message or an Answer of the network."""

FrameHandler = Callable[[memoryview, int, int, int, "Connection", "Services"], "Answer | None"]
"""Called with frame, offset of the body, version, correlation id, connection and services. Returns an Answer; None to have the request
decoded for the handler of messages. Raises ProtocolError for a frame that is no valid request of the API."""

APIS_BY_FOLDER: dict[str, tuple[ApiKey, ...]] = {
    "": (ApiKey.API_VERSIONS,),
    "configs": (
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_CONFIG_RESOURCES,
    ),
    "control": (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ENVELOPE,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    ),
    "data": (
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.DELETE_RECORDS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ),
    "groups": (
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
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
    ),
    "security": (
        ApiKey.SASL_HANDSHAKE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ),
    "shares": (
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ),
    "telemetry": (
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    ),
    "topics": (
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
    ),
    "transactions": (
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.WRITE_TXN_MARKERS,
    ),
}
"""The APIs by the folder below `broker/handlers` that contains their handlers."""

_FOLDER_OF = {key: folder for folder, keys in APIS_BY_FOLDER.items() for key in keys}

SERVED = frozenset(_FOLDER_OF)
"""The APIs with a handler. `ottla.broker.request.listed_apis` decides which of their versions are listed and accepted."""

IMPLEMENTED = SERVED & ZOOKEEPER_MODE_APIS
"""The APIs that ApiVersions lists in a cluster without features on ZooKeeper."""


def module_of(key: ApiKey) -> str:
    """The dotted name of the module that contains the handler of an implemented API."""
    return ".".join(filter(None, ("ottla.broker.handlers", _FOLDER_OF[key], key.name.lower())))


def handlers_of(key: ApiKey) -> tuple[Handler | None, FrameHandler | None]:
    """The handler of messages and the handler of frames of an implemented API. One of the two may be None.

    Of an API with both, the handler of frames answers what is usual, and returns None for the rest.
    """
    name = key.name.lower()
    module = import_module(module_of(key))
    return getattr(module, f"handle_{name}", None), getattr(module, f"handle_{name}_frame", None)
