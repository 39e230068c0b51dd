"""Chooses the version of an API for a broker: the newest that both support (KIP-35)."""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.client.errors import UnsupportedByBroker
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersion
from ottla.protocol.schema.fields import Versions
from ottla.protocol.schema.registry import api

HIGHEST: Final = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.UPDATE_FEATURES: 1,
}
"""Newest version used: later ones identify topics by id, have bulk requests, or answer another error, which the commands do not need."""

ApiTable = dict[int, Versions]


def api_table(listed: Iterable[ApiVersion]) -> ApiTable:
    """The versions in an ApiVersions answer, by API key."""
    return {entry.api_key: Versions(entry.min_version, entry.max_version) for entry in listed}


def with_other_requests(tables: Mapping[int, ApiTable]) -> list[int]:
    """The brokers that support other requests than the first one. Brokers do not report their release, but releases differ in requests."""
    first = next(iter(tables.values()), {})
    return [broker_id for broker_id, table in tables.items() if table != first]


def choose_version(key: ApiKey, table: ApiTable, address: str) -> int:
    """The newest version of the API that the broker and this client support. Raises UnsupportedByBroker."""
    theirs = table.get(key)
    name = key.name.title().replace("_", "")
    if theirs is None:
        raise UnsupportedByBroker(f"the broker at {address} does not support {name}")
    ours = api(key).versions
    common = Versions(ours.first, min(ours.last, HIGHEST.get(key, ours.last))).within(theirs)
    if common.last < common.first:
        raise UnsupportedByBroker(
            f"the broker at {address} supports {name} {theirs.first} to {theirs.last}, this client {ours.first} to {ours.last}"
        )
    return common.last
