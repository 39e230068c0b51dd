"""Says how the versions of Produce and TxnOffsetCommit take part in transactions (KIP-890)."""

from __future__ import annotations

from enum import IntEnum

from ottla.protocol.api_keys import ApiKey


class SupportedOperation(IntEnum):
    """Names the ways in which a version takes part. Kafka's TransactionSupportedOperation."""

    DEFAULT_ERROR = 0
    """The client has added them itself, and does not know TRANSACTION_ABORTABLE: it gets INVALID_TXN_STATE."""
    GENERIC_ERROR = 1
    """The client has added them itself, and knows TRANSACTION_ABORTABLE."""
    ADD_PARTITION = 2
    """The request adds them: the transaction has version 2."""


_FIRST_VERSIONS = {ApiKey.PRODUCE: (11, 12), ApiKey.TXN_OFFSET_COMMIT: (4, 5)}
"""The first versions of GENERIC_ERROR and of ADD_PARTITION."""


def operation_of(key: ApiKey, version: int) -> SupportedOperation:
    """The operation of a version of Produce or TxnOffsetCommit."""
    return SupportedOperation(sum(version >= first for first in _FIRST_VERSIONS[key]))
