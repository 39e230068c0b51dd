"""Checks the batches of acknowledgements in a request, before any share partition sees them."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.shares.record_states import Acknowledgement, AcknowledgeType


def are_valid(batches: Iterable[Acknowledgement], *, may_renew: bool) -> bool:
    """Whether the batches are in order, and each has one known type, or one for each of its offsets."""
    last_type = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    former_last = -1
    for first, last, types in batches:
        if first > last or first < former_last:
            return False
        if not types or (len(types) > 1 and len(types) != last - first + 1):
            return False
        if min(types) < AcknowledgeType.GAP or max(types) > last_type:
            return False
        former_last = last
    return True
