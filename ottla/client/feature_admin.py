"""Describes the features of a cluster, and raises and lowers their finalized levels (KIP-584)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.connection import CLIENT_SOFTWARE
from ottla.client.errors import ClientError, Refused, check
from ottla.client.group_admin import ListedGroup, reachable_groups
from ottla.protocol import features
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import GROUP_VERSION, SHARE_VERSION
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2

_GROUPS_OF: Final = {GROUP_VERSION: "consumer", SHARE_VERSION: "share"}
"""The type of the groups that need a feature."""
_WITHOUT_MEMBERS: Final = frozenset({"Empty", "Dead"})


class Feature(NamedTuple):
    """A feature; `finalized` is 0 if it has no finalized level."""

    name: str
    finalized: int
    lowest: int
    highest: int


class GroupsNeedFeature(ClientError):
    """A feature must keep its level, because groups with members need it."""


def describe_features(cluster: Cluster) -> tuple[list[Feature], int]:
    """The features that the brokers support or have finalized, and the epoch of the finalized ones; -1 without one.

    The brokers of a cluster on ZooKeeper list no supported feature until one is finalized, as in Apache Kafka 3.9. Then the features of
    this release are returned.
    """
    request = ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE[0], client_software_version=CLIENT_SOFTWARE[1])
    answer = cluster.ask_any(request, ApiVersionsResponse)
    check("the features", answer.error_code)
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    supported = supported or {name: (1, highest) for name, highest in features.IMPLEMENTED.items()}
    names = sorted(supported.keys() | finalized.keys())
    return [Feature(name, finalized.get(name, 0), *supported.get(name, (0, 0))) for name in names], answer.finalized_features_epoch


def update_features(
    cluster: Cluster, levels: Mapping[str, int], upgrade_type: int, *, validate_only: bool = False
) -> dict[str, ClientError | None]:
    """Finalize levels; level 0 removes a feature. The result has the error of each feature. Raises Refused for all."""
    updates = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type) for name, level in levels.items()]
    request = UpdateFeaturesRequest(timeout_ms=int(cluster.timeout_seconds * 1000), feature_updates=updates, validate_only=validate_only)
    answer = cluster.ask_controller(request, UpdateFeaturesResponse)
    check("the features", answer.error_code, answer.error_message)
    results = {each.feature: each for each in answer.results}
    return {
        name: Refused(name, results[name].error_code, results[name].error_message)
        if name in results and results[name].error_code != ErrorCode.NONE
        else None
        for name in levels
    }


def check_no_group_needs(cluster: Cluster, names: Mapping[str, int]) -> None:
    """Check that no group with members needs one of the features whose level becomes 0. Raises GroupsNeedFeature, ClientError.

    The controller does not know groups. So clients have to leave first, or their next request fails.
    """
    for name, level in names.items():
        kind = _GROUPS_OF.get(name)
        if kind is None or level > 0:
            continue
        groups, errors = reachable_groups(cluster, types=[kind])
        for broker_id, error in errors.items():
            raise GroupsNeedFeature(f"{name}: the groups of broker {broker_id} are not known: {error}")
        if needing := [group for group in groups if group.state not in _WITHOUT_MEMBERS]:
            raise GroupsNeedFeature(f"{name}: {kind} groups have members, which have to leave first: {_named(needing)}")


def _named(groups: list[ListedGroup]) -> str:
    return ", ".join(group.group for group in groups)
