"""Chooses the error code for a fenced producer that its version of the request supports."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
"""The version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn that knows PRODUCER_FENCED (KIP-588)."""


def known_error(error: ErrorCode, version: int) -> ErrorCode:
    """The error code for a producer that asks in this version of one of these requests."""
    if error == ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
