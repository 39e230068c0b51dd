"""What a leader asks of the controller: to change the ISR of its partition. The port, and what comes back.

`alter_partition` implements it with AlterPartition requests (KIP-497); a broker that is alone never changes an ISR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from protocol.errors import ErrorCode
from storage.disk.topic_partition import TopicPartition


class IsrProposal(NamedTuple):
    """The ISR that a leader wants, in the epochs in which it decided so."""

    topic_partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int


class IsrDecision(NamedTuple):
    """What the controller says. With an error the other fields are those of the proposal."""

    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int
    partition_epoch: int


NOT_CARRIED_OUT = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller knows the partition in this very epoch and left it as it is: the confirmed ISR is true."""

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
"""The leader's picture of the partition may be old: the controller will say what is true."""


class IsrProposals(Protocol):
    """The way to the controller."""

    def propose(self, proposal: IsrProposal, on_decided: Callable[[IsrDecision], None]) -> bool:
        """Send the proposal soon, many in one request; False when one about this partition is under way already.

        `on_decided` is called once, on the event loop. Lost connections and moved controllers are dealt with below: the proposal is sent
        again until somebody decided.
        """


class NoIsrProposals:
    """Nobody to ask: a broker that is alone."""

    def propose(self, proposal: IsrProposal, on_decided: Callable[[IsrDecision], None]) -> bool:
        """See IsrProposals."""
        return False
