"""Names the features of a cluster (KIP-584): each has a level that the cluster's operator finalizes, and allows protocols and formats."""

from typing import Final

GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
SHARE_VERSION: Final = "share.version"
