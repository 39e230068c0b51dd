"""Finds messages, versions and header versions by API key.

The broker uses it for every request it decodes and for every request it sends. Modules of `ottla.protocol.messages` are imported on first
use, so a process pays only for the APIs it uses. Their names follow from the names of the keys.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final, NamedTuple, cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.api_versions import versions_of
from ottla.protocol.schema.fields import Versions
from ottla.protocol.schema.message import Message

# APIs that a 3.9 broker in ZooKeeper mode serves. The other keys belong to KRaft, share groups and client telemetry.
ZOOKEEPER_MODE_APIS: Final = frozenset(
    {key for key in ApiKey if key <= ApiKey.ALTER_USER_SCRAM_CREDENTIALS}
    | {ApiKey.ALTER_PARTITION, ApiKey.UPDATE_FEATURES, ApiKey.ENVELOPE}
    | {ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS}
    | {ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
)

# Only brokers and the controller send these. Clients may send all others.
INTER_BROKER_APIS: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)


class Api(NamedTuple):
    """The messages of one API and their versions."""

    key: ApiKey
    request: type[Message]
    response: type[Message]
    versions: Versions
    flexible: Versions

    def request_header_version(self, version: int) -> int:
        """2 for flexible versions, else 1. Only ControlledShutdown 0 has the header without a client id."""
        if self.flexible.cover(version):
            return 2
        return 0 if self.key == ApiKey.CONTROLLED_SHUTDOWN and version == 0 else 1

    def response_header_version(self, version: int) -> int:
        """1 for flexible versions, else 0. Always 0 for ApiVersions, whose clients do not know in which version they are answered."""
        return 1 if self.flexible.cover(version) and self.key != ApiKey.API_VERSIONS else 0


@cache
def api(key: ApiKey) -> Api:
    """The messages of an API. Raises ImportError for an API without declared messages."""
    module = import_module(f"ottla.protocol.messages.{key.name.lower()}")
    name = key.name.title().replace("_", "")
    request = cast("type[Message]", getattr(module, f"{name}Request"))
    response = cast("type[Message]", getattr(module, f"{name}Response"))
    return Api(key, request, response, *versions_of(key))
