"""Names the features of a cluster (KIP-584). The operator of the cluster finalizes their levels, which allow protocols and formats."""

from collections.abc import Mapping
from typing import Final

GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
SHARE_VERSION: Final = "share.version"

IMPLEMENTED: Mapping[str, int] = {GROUP_VERSION: 1, TRANSACTION_VERSION: 2, SHARE_VERSION: 1}
"""The features that this release supports, each with its highest level. All levels from 1 on are supported; 0 is the absence of a feature.

`ottla.broker.request.listed_apis` has the APIs and versions that a level allows.
"""


def unsupported(levels: Mapping[str, int]) -> dict[str, int]:
    """Those finalized levels that this release does not support."""
    return {name: level for name, level in levels.items() if not 1 <= level <= IMPLEMENTED.get(name, 0)}
