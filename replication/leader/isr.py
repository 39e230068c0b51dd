"""Maintains the in-sync replicas of led partitions: proposes members to add and to remove, and applies the controller's decisions
(KIP-497).

Called by `Partition` when a follower fetched, and by `ReplicaManager.maybe_shrink_isrs` from time to time. A partition has at most one
change in flight (`Partition.isr_change`). Until it is decided, `Partition.isr` is the ISR that the controller confirmed last.
`Partition.maximal_isr` has the replicas for which the high watermark waits: a proposed member counts at once, a member to be removed counts
until it is removed.

A decision belongs to its proposal. If the controller changed the partition meanwhile (LeaderAndIsr), the decision is out of date and
ignored. After some errors the proposal may have been carried out nevertheless, or this leader may be deposed. Then the partition waits for
the controller's next request, because waiting for the maximal ISR is safe in every case.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.protocol.errors import ErrorCode
from ottla.replication.ports.isr_proposals import (
    MAY_BE_OUT_OF_DATE,
    NOT_CARRIED_OUT,
    IsrDecision,
    IsrProposal,
    IsrProposals,
    NoIsrProposals,
)
from ottla.storage.disk.clock import NEVER_MS, elapsed_ms

if TYPE_CHECKING:
    from ottla.replication.leader.partition import Partition
    from ottla.replication.leader.progress import ReplicaProgress
    from ottla.replication.ports.cluster import MetadataCache
    from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

LEADER_RECOVERED = 0
"""Recovery state in all proposals: a leader recovers from an unclean election (KIP-704) without further work."""


class IsrChanges:
    """Shared by the partitions of a broker: the connection to the controller, the limit of lag, and counts for metrics.

    `expands` and `shrinks` count confirmed changes (IsrExpandsPerSec, IsrShrinksPerSec). `failed` counts changes that were refused or came
    too late (FailedIsrUpdatesPerSec).
    """

    __slots__ = ("_clock", "cluster", "expands", "failed", "proposals", "replica_lag_time_max_ms", "shrinks")

    def __init__(self, cluster: MetadataCache, clock: Clock, replica_lag_time_max_ms: int, proposals: IsrProposals | None = None) -> None:
        self.cluster = cluster
        self.replica_lag_time_max_ms = replica_lag_time_max_ms
        self.proposals: IsrProposals = NoIsrProposals() if proposals is None else proposals
        self.expands = 0
        self.shrinks = 0
        self.failed = 0
        self._clock = clock

    def maybe_expand(self, partition: Partition, progress: ReplicaProgress) -> bool:
        """Propose to add a follower, without members that are no replicas any more. Returns whether it was proposed.

        The controller refuses such members, and nothing is committed before they leave. The follower must be alive, have everything up to
        the high watermark, and reach into this leader epoch. An earlier leader may have committed records between the high watermark known
        here and the start of the epoch.
        """
        start = partition.leader_epoch_start_offset
        end_offset = progress.log_end_offset
        broker_id = progress.broker_id
        if (
            partition.isr_change is not None
            or broker_id in partition.isr
            or start is None
            or end_offset < start
            or end_offset < partition.log.high_watermark
            or broker_id not in self.cluster.brokers
        ):
            return False
        members = (each for each in partition.isr if each == partition.broker_id or each in partition.followers)
        partition.maximal_isr = (*partition.isr, broker_id)
        return self._propose(partition, (*members, broker_id))

    def may_come_in(self, progress: ReplicaProgress, log_end_offset: int) -> bool:
        """Whether the high watermark must wait for a replica outside the ISR, because it is alive and caught up."""
        return progress.broker_id in self.cluster.brokers and progress.is_caught_up(
            log_end_offset, elapsed_ms(self._clock), self.replica_lag_time_max_ms
        )

    def maybe_shrink(self, partition: Partition, now_ms: int) -> bool:
        """Propose to remove members that have not caught up for `replica.lag.time.max.ms`. Returns whether it was proposed."""
        if len(partition.isr) == 1 or partition.isr_change is not None or not partition.is_leader:
            return False
        out_of_sync = self.out_of_sync(partition, now_ms)
        if not out_of_sync:
            return False
        isr = tuple(broker_id for broker_id in partition.isr if broker_id not in out_of_sync)
        log = partition.log
        logger.info(
            "%s: proposing to shrink the ISR from %s to %s; high watermark %d, log end offset %d; out of sync: %s",
            partition.topic_partition, partition.isr, isr, log.high_watermark, log.log_end_offset,
            ", ".join(_lag_of(partition, broker_id, now_ms) for broker_id in out_of_sync),
        )  # fmt: skip
        return self._propose(partition, isr)

    def out_of_sync(self, partition: Partition, now_ms: int) -> list[int]:
        """The ISR members that lag too far behind."""
        end_offset = partition.log.log_end_offset
        followers = partition.followers
        return [
            broker_id
            for broker_id in partition.isr
            if broker_id != partition.broker_id
            and (broker_id not in followers or not followers[broker_id].is_caught_up(end_offset, now_ms, self.replica_lag_time_max_ms))
        ]

    def _propose(self, partition: Partition, isr: tuple[int, ...]) -> bool:
        proposal = IsrProposal(
            partition.topic_partition, partition.topic_id, partition.leader_epoch, partition.partition_epoch, isr, LEADER_RECOVERED
        )
        partition.isr_change = proposal
        if self.proposals.propose(proposal, lambda decision: self._on_decided(partition, proposal, decision)):
            return True
        # A proposal of an earlier state of this partition is still in flight. Nothing was sent, so nothing can have changed.
        self.failed += 1
        partition.withdraw_isr_change()
        return False

    def _on_decided(
        self, partition: Partition, proposal: IsrProposal, decision: IsrDecision, last_error: ErrorCode = ErrorCode.NONE
    ) -> None:
        if partition.isr_change is not proposal:
            return
        error = decision.error_code
        if error == ErrorCode.NONE:
            self._on_confirmed(partition, proposal, decision)
            return
        self.failed += 1
        if error in NOT_CARRIED_OUT:
            partition.withdraw_isr_change()
            logger.info(
                "%s: the controller refused the ISR %s with %s; it stays %s",
                proposal.topic_partition, proposal.isr, error.name, partition.isr,
            )  # fmt: skip
        elif error in MAY_BE_OUT_OF_DATE:
            logger.info(
                "%s: the controller refused the ISR %s with %s; waiting for its next request about the partition",
                proposal.topic_partition, proposal.isr, error.name,
            )  # fmt: skip
        else:
            if error != last_error:  # the proposal is repeated several times a second
                logger.warning(
                    "%s: the ISR %s could not be proposed (%s); proposing it again", proposal.topic_partition, proposal.isr, error.name
                )
            self.proposals.propose(proposal, lambda again: self._on_decided(partition, proposal, again, error))

    def _on_confirmed(self, partition: Partition, proposal: IsrProposal, decision: IsrDecision) -> None:
        if decision.leader_epoch != partition.leader_epoch or decision.partition_epoch < partition.partition_epoch:
            # A request of the controller with a newer epoch is on its way. Until it arrives, the maximal ISR holds.
            self.failed += 1
            return
        if len(proposal.isr) > len(partition.isr):
            self.expands += 1
        else:
            self.shrinks += 1
        partition.confirm_isr(decision.isr, decision.partition_epoch)
        logger.info(
            "%s: the ISR is now %s, in partition epoch %d%s",
            partition.topic_partition, decision.isr, decision.partition_epoch,
            " (under min.insync.replicas)" if len(decision.isr) < partition.effective_min_isr else "",
        )  # fmt: skip
        partition.maybe_advance_high_watermark()


def _lag_of(partition: Partition, broker_id: int, now_ms: int) -> str:
    progress = partition.followers.get(broker_id)
    if progress is None:
        return f"broker {broker_id} (no longer a replica)"
    since_ms = progress.last_caught_up_ms
    caught_up = "never caught up" if since_ms == NEVER_MS else f"caught up {now_ms - since_ms} ms ago"
    return f"broker {broker_id} (log end offset {progress.log_end_offset}, {caught_up})"
