"""Finalizes features in a new cluster, and says when a cluster can have any (KIP-584).

`inter.broker.protocol.version` decides whether features are versioned: brokers before 2.7 do not know of them.
"""

from contextlib import suppress
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.keys.replication import INTER_BROKER_PROTOCOL_VERSION
from ottla.config.schema.metadata_version import is_at_least
from ottla.controller.errors import NodeExists
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.layout import FEATURE, HIGHEST_SUPPORTED, LOWEST_SUPPORTED, FeatureNode, encode_feature
from ottla.protocol import features

FIRST_WITH_FEATURES: Final = "2.7-IV0"
FIRST_WITH_SECOND_FEATURE_BODY: Final = "3.3-IV0"


def are_versioned(config: BrokerConfig) -> bool:
    """Whether all brokers know of features."""
    return is_at_least(config[INTER_BROKER_PROTOCOL_VERSION], FIRST_WITH_FEATURES)


def feature_body(config: BrokerConfig) -> int:
    """The version of the body of /feature that all brokers can read."""
    return 2 if is_at_least(config[INTER_BROKER_PROTOCOL_VERSION], FIRST_WITH_SECOND_FEATURE_BODY) else 1


def supported_features() -> dict[str, dict[str, int]]:
    """The features that this broker supports, as it registers them: by name, the lowest and the highest level."""
    return {name: {LOWEST_SUPPORTED: 1, HIGHEST_SUPPORTED: highest} for name, highest in sorted(features.IMPLEMENTED.items())}


async def finalize_in_new_cluster(store: MetadataStore, config: BrokerConfig) -> None:
    """Finalize all features at their highest level, if /feature does not exist. Raises StoreError.

    Only for a cluster without ZooKeeper, of which no broker of Apache Kafka can be a member. Its first broker calls this before it
    registers.
    """
    if are_versioned(config) and await store.exists(FEATURE) is None:
        node = FeatureNode(dict(features.IMPLEMENTED), True, feature_body(config))
        with suppress(NodeExists):  # another broker of the cluster was faster
            await store.create(FEATURE, encode_feature(node))
