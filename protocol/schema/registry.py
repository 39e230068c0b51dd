"""From an API key to its messages, versions and headers; the source of what ApiVersions advertises.

The broker asks here for every request it decodes and for every request it sends. Modules of `protocol.messages` are imported when first
asked for, so a process pays only for the APIs it speaks; their names follow from the name of the key.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Final, NamedTuple, cast

from protocol.api_keys import ApiKey
from protocol.schema.api_versions import versions_of
from protocol.schema.fields import Versions
from protocol.schema.message import Message

# What a 3.9 broker in ZooKeeper mode serves. KRaft, share groups and client telemetry have the other keys.
ZOOKEEPER_MODE_APIS: Final = frozenset(
    {key for key in ApiKey if key <= ApiKey.ALTER_USER_SCRAM_CREDENTIALS}
    | {ApiKey.ALTER_PARTITION, ApiKey.UPDATE_FEATURES, ApiKey.ENVELOPE}
    | {ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS}
    | {ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
)

# Between brokers and from the controller only; everything else is for clients too.
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
    }
)


class Api(NamedTuple):
    """The messages of one API and the versions both have."""

    key: ApiKey
    request: type[Message]
    response: type[Message]
    versions: Versions
    flexible: Versions

    def request_header_version(self, version: int) -> int:
        """2 for flexible versions, else 1; ControlledShutdown 0 alone has the header without a client id."""
        if self.flexible.cover(version):
            return 2
        return 0 if self.key == ApiKey.CONTROLLED_SHUTDOWN and version == 0 else 1

    def response_header_version(self, version: int) -> int:
        """1 for flexible versions, else 0; ApiVersions always 0, for clients that do not know which version was answered."""
        return 1 if self.flexible.cover(version) and self.key != ApiKey.API_VERSIONS else 0


class AdvertisedApi(NamedTuple):
    """One line of an ApiVersions response."""

    key: ApiKey
    min_version: int
    max_version: int


@cache
def api(key: ApiKey) -> Api:
    """The messages of an API. Raises ImportError for one without declared messages."""
    module = import_module(f"protocol.messages.{key.name.lower()}")
    name = key.name.title().replace("_", "")
    request = cast("type[Message]", getattr(module, f"{name}Request"))
    response = cast("type[Message]", getattr(module, f"{name}Response"))
    return Api(key, request, response, *versions_of(key))


def advertised(handlers: Iterable[ApiKey]) -> list[AdvertisedApi]:
    """What a broker with these handlers lists, in the order in which Apache Kafka lists it: by key."""
    return [AdvertisedApi(key, *versions_of(key).valid) for key in sorted(handlers)]
