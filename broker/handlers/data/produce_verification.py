"""Maps the results of a verification to the errors of a batch that could not open a transaction (`ReplicaManager.handleProduceAppend` of
Apache Kafka)."""

from __future__ import annotations

from typing import Final

from ottla.coordination.supported_operation import SupportedOperation
from ottla.protocol.errors import ErrorCode

RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors that become NOT_ENOUGH_REPLICAS: not every producer would retry after them, and some would ask for metadata."""


def unverified(code: ErrorCode, operation: SupportedOperation) -> tuple[ErrorCode, str | None]:
    """Code and message of a partition that the coordinator did not verify, or did not add.

    Producers of version 2 know CONCURRENT_TRANSACTIONS.
    """
    if code in RETRIABLE and not (code == ErrorCode.CONCURRENT_TRANSACTIONS and operation is SupportedOperation.ADD_PARTITION):
        return (
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    if code == ErrorCode.INVALID_TXN_STATE:
        return code, "Partition was not added to the transaction"
    return code, None
