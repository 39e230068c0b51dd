"""Declares the port by which a leader proposes a changed ISR to the controller, with proposal and decision.

`alter_partition` implements it with AlterPartition requests (KIP-497). A broker that is alone never changes an ISR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition


class IsrProposal(NamedTuple):
    """The ISR that a leader proposes, and the epochs of the proposal."""

    topic_partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int


class IsrDecision(NamedTuple):
    """The controller's decision. With an error the other fields repeat the proposal."""

    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int
    partition_epoch: int


NOT_CARRIED_OUT = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""Errors after which the confirmed ISR holds: the controller knows the partition in this epoch and left it unchanged."""

MAY_BE_OUT_OF_DATE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""Errors after which the leader's state may be out of date; the controller will send the new state."""


class IsrProposals(Protocol):
    """Sends proposals to the controller."""

    def propose(self, proposal: IsrProposal, on_decided: Callable[[IsrDecision], None]) -> bool:
        """Send the proposal soon, many in one request. Returns False when another one for the partition is in flight.

        `on_decided` is called once, on the event loop. After lost connections and moves of the controller the proposal is sent again
        until it is decided.
        """


class NoIsrProposals:
    """For a broker that is alone: there is no controller elsewhere."""

    def propose(self, proposal: IsrProposal, on_decided: Callable[[IsrDecision], None]) -> bool:
        """See IsrProposals."""
        return False
