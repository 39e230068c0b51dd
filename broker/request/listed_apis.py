"""Determines the APIs and versions that a broker lists in ApiVersions, and accepts.

The messages declare more versions than a broker may list. A cluster on ZooKeeper may have members of Apache Kafka 3.9, so a broker lists
exactly what 3.9 lists, until a feature is finalized. A cluster with its own metadata file, or with a finalized feature, has no such member.
There a broker also lists the versions of `WITHOUT_FEATURE`, and those of the finalized features.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.features import GROUP_VERSION, SHARE_VERSION, TRANSACTION_VERSION
from ottla.protocol.schema.api_versions import versions_in_3_9, versions_of
from ottla.protocol.schema.fields import Versions
from ottla.protocol.schema.registry import ZOOKEEPER_MODE_APIS

WITHOUT_FEATURE: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 13,
    ApiKey.FETCH: 18,
    ApiKey.LIST_OFFSETS: 11,
    ApiKey.METADATA: 13,
    ApiKey.OFFSET_COMMIT: 10,
    ApiKey.OFFSET_FETCH: 10,
    ApiKey.DESCRIBE_GROUPS: 6,
    ApiKey.API_VERSIONS: 5,
    ApiKey.DESCRIBE_LOG_DIRS: 5,
    ApiKey.DELETE_GROUPS: 3,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 1,
    ApiKey.UPDATE_FEATURES: 2,
    ApiKey.DESCRIBE_CLUSTER: 2,
    ApiKey.LIST_TRANSACTIONS: 2,
    ApiKey.LIST_CONFIG_RESOURCES: 1,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,  # without the feature it is refused; librdkafka gets an error only if this version is listed
}
"""The newest versions that need no feature, where 3.9 has older ones or none."""

WITH_SUBSCRIPTION: Final[Mapping[ApiKey, int]] = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0, ApiKey.PUSH_TELEMETRY: 0}
"""The same, but listed only while there is a subscription to the metrics of clients, because clients use them wherever they are listed.
Requests are accepted even if they are not listed, so that a client learns that its subscription has ended."""

OF_FEATURES: Final[Mapping[tuple[str, int], Mapping[ApiKey, int]]] = {
    (GROUP_VERSION, 1): {ApiKey.CONSUMER_GROUP_HEARTBEAT: 1, ApiKey.CONSUMER_GROUP_DESCRIBE: 1},
    (TRANSACTION_VERSION, 2): {
        ApiKey.PRODUCE: 12,
        ApiKey.END_TXN: 5,
        ApiKey.WRITE_TXN_MARKERS: 2,
        ApiKey.TXN_OFFSET_COMMIT: 6,
    },
    (SHARE_VERSION, 1): {
        ApiKey.SHARE_GROUP_HEARTBEAT: 1,
        ApiKey.SHARE_GROUP_DESCRIBE: 1,
        ApiKey.SHARE_FETCH: 2,
        ApiKey.SHARE_ACKNOWLEDGE: 2,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
        ApiKey.READ_SHARE_GROUP_STATE: 0,
        ApiKey.WRITE_SHARE_GROUP_STATE: 1,
        ApiKey.DELETE_SHARE_GROUP_STATE: 0,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 1,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 1,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
    },
}
"""By feature and level, the newest versions that are listed from this level on."""

UNLISTED_IN_3_9: Final = frozenset({ApiKey.DESCRIBE_TOPIC_PARTITIONS})
"""APIs that are accepted although they are not listed: Apache Kafka 3.9 in ZooKeeper mode does so."""


KEPT: Final = (TRANSACTION_VERSION,)
"""Features whose versions stay accepted, unlisted, after their level was lowered, until the broker starts again. A producer learns of the
level when it connects, and would lose the transaction that it has open."""


def newest_accepted(key: ApiKey) -> int:
    """The newest version of an API that some broker accepts, whatever its cluster and its features are."""
    return max(
        versions_in_3_9(key).last, *(versions.get(key, 0) for versions in (WITHOUT_FEATURE, WITH_SUBSCRIPTION, *OF_FEATURES.values()))
    )


def needs_of(key: int, version: int) -> str | None:
    """The condition, in words, on which brokers accept a version that 3.9 does not list. None if there is none."""
    for (name, level), versions in OF_FEATURES.items():
        if 0 <= version <= versions.get(key, -1):  # type: ignore[call-overload]  # an unknown key is in no table
            return f"level {level} of the feature {name}"
    newest = {**WITHOUT_FEATURE, **WITH_SUBSCRIPTION}.get(key, -1)  # type: ignore[call-overload]  # the same
    return "a finalized feature" if 0 <= version <= newest else None


def no_feature(name: str) -> int:
    """The level of a feature in a cluster without features."""
    return 0


class ListedApis:
    """The listed and the accepted versions, by API. They change with the levels of the features."""

    __slots__ = (
        "_accepted",
        "_callbacks",
        "_had_subscriptions",
        "_has_subscriptions",
        "_is_own_cluster",
        "_kept",
        "_level",
        "_served",
        "is_beyond_3_9",
        "versions",
    )

    def __init__(
        self,
        served: Iterable[ApiKey],
        level: Callable[[str], int] = no_feature,
        *,
        is_own_cluster: bool = False,
        has_subscriptions: Callable[[], bool] = lambda: False,
    ) -> None:
        """`served` are the APIs with a handler. `level` returns the finalized level of a feature.

        `has_subscriptions` returns whether there are subscriptions to the metrics of clients.
        """
        self._has_subscriptions = has_subscriptions
        self._had_subscriptions = False
        self._served = sorted(served)
        self._level = level
        self._is_own_cluster = is_own_cluster
        self._callbacks: list[Callable[[], None]] = []
        self.is_beyond_3_9 = is_own_cluster
        """Whether no broker of Apache Kafka can be a member of the cluster."""
        self.versions: dict[ApiKey, Versions] = {}
        """The listed versions, in the order of the keys, which is that of Apache Kafka."""
        self._accepted: dict[int, Versions] = {}
        self._kept = dict.fromkeys(KEPT, 0)
        """The highest level of these features so far."""
        self.update()

    def accepts(self, key: int, version: int) -> bool:
        """Whether a request is answered. Others close the connection."""
        versions = self._accepted.get(key)
        return versions is not None and versions.cover(version)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback` called whenever the listed versions have changed."""
        self._callbacks.append(callback)

    def on_subscriptions(self) -> None:
        """Take over whether there are subscriptions, if that has changed: an update costs a fifth of a millisecond."""
        if self._has_subscriptions() != self._had_subscriptions:
            self.update()

    def update(self) -> None:
        """Take over the levels of the features, and whether there are subscriptions to metrics of clients."""
        before = self.versions
        levels = {name: self._level(name) for name, _ in OF_FEATURES}
        self._kept = {name: max(highest, levels.get(name, 0)) for name, highest in self._kept.items()}
        self.is_beyond_3_9 = self._is_own_cluster or any(levels.values())
        self._had_subscriptions = self._has_subscriptions()
        self.versions = self._versions_of(levels, WITH_SUBSCRIPTION if self._had_subscriptions else {})
        unlisted = {key: versions_in_3_9(key) for key in UNLISTED_IN_3_9}
        accepted = unlisted | self._versions_of(levels | self._kept, WITH_SUBSCRIPTION)
        self._accepted = {int(key): versions for key, versions in accepted.items()}
        if self.versions != before:
            for callback in self._callbacks:
                callback()

    def _versions_of(self, levels: Mapping[str, int], telemetry: Mapping[ApiKey, int]) -> dict[ApiKey, Versions]:
        newest = {**WITHOUT_FEATURE, **telemetry} if self.is_beyond_3_9 else {}
        for (name, level), versions in OF_FEATURES.items():
            if levels[name] >= level:
                newest |= {key: max(last, newest.get(key, last)) for key, last in versions.items()}
        return {
            key: Versions(versions_of(key).valid.first, newest[key]) if key in newest else versions_in_3_9(key)
            for key in self._served
            if key in newest or key in ZOOKEEPER_MODE_APIS
        }
