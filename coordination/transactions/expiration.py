"""Aborts transactions that exceeded their timeout, and removes transactional ids that were unused for long.

Both are looked for periodically, as by Apache Kafka: every `transaction.abort.timed.out.transaction.cleanup.interval.ms`, and every
`transaction.remove.expired.transaction.cleanup.interval.ms`. An id is removed by a tombstone. While the tombstone is not on all replicas in
sync the id is Dead, and its producers are asked to wait.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final

from ottla.coordination.partitions.owned import OwnedPartition, OwnedStates
from ottla.coordination.partitions.periodic import PeriodicChecks
from ottla.coordination.partitions.runner import EffectRunner
from ottla.coordination.partitions.topic_log import TOMBSTONE_OVERHEAD, TopicLog, encode_pairs
from ottla.coordination.transactions.effects import ProducerResult, SendMarkers, Store
from ottla.coordination.transactions.log_records import transaction_key
from ottla.coordination.transactions.metadata import FINISHED, IllegalTransition, TransactionMetadata, TransactionState
from ottla.coordination.transactions.state import NewProducerId, on_timeout
from ottla.pauses import pause
from ottla.protocol.errors import ErrorCode
from ottla.replication.waiting.timing_wheel import TimingWheel
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

TOMBSTONE_BYTES: Final = 16 * 1024
"""Size of the records in one batch of tombstones, bytes; less if the topic does not accept such batches."""

Expired = tuple[TransactionMetadata, bytes]


class TransactionExpiration:
    """See the module. Owned by the coordinator."""

    def __init__(
        self,
        owned: OwnedStates[TransactionMetadata],
        runner: EffectRunner[TransactionMetadata, Store | SendMarkers],
        log: TopicLog,
        timing_wheel: TimingWheel,
        clock: Clock,
        level: Callable[[], int],
        new_producer_id: NewProducerId,
        *,
        abort_interval_ms: int,
        remove_interval_ms: int,
        expiration_ms: int,
    ) -> None:
        """`level` is that of transaction.version, `expiration_ms` is `transactional.id.expiration.ms`."""
        self._owned = owned
        self._runner = runner
        self._log = log
        self._clock = clock
        self._level = level
        self._new_producer_id = new_producer_id
        self._expiration_ms = expiration_ms
        self.timeouts = 0
        """Aborts that began because a transaction was open for longer than its producer allowed."""
        self.checks = PeriodicChecks(
            "transaction-expiration", timing_wheel, (self.abort_timed_out, abort_interval_ms), (self.remove_expired, remove_interval_ms)
        )

    # -- timeouts ----------------------------------------------------------------------------------------------------------

    async def abort_timed_out(self) -> None:
        """Abort transactions that have been open for longer than their producers allowed, and fence the producers."""
        now_ms = self._clock.now_ms()
        async for _, txn in self._all():
            if txn.is_timed_out(now_ms):
                logger.info("%s: open for more than %d ms; aborting", txn, txn.timeout_ms)
                try:
                    effects = on_timeout(txn, partial(self._on_aborted, txn), self._level(), self._new_producer_id, now_ms)
                except IllegalTransition as error:
                    logger.error("the transaction cannot be aborted: %s", error)
                    continue
                self._runner.run(txn, effects)

    def _on_aborted(self, txn: TransactionMetadata, result: ProducerResult) -> None:
        if not result.error:
            self.timeouts += 1
        else:
            logger.warning("%s: its abort after a timeout was not stored (%s); it is tried again later", txn, result.error.name)

    # -- unused ids --------------------------------------------------------------------------------------------------------

    async def remove_expired(self) -> None:
        """Remove transactional ids without a transaction that were not used for `transactional.id.expiration.ms`."""
        last_ms = self._clock.now_ms() - self._expiration_ms
        expired: list[Expired] = []
        size = limit = 0
        last_owned: OwnedPartition | None = None
        async for owned, txn in self._all():
            if txn.pending_state is not None or txn.state not in FINISHED or txn.last_update_ms > last_ms:
                continue
            key = transaction_key(txn.transactional_id)
            record_bytes = len(key) + TOMBSTONE_OVERHEAD
            if last_owned is not None and (last_owned is not owned or size + record_bytes > limit):
                self._append_tombstones(last_owned, expired)
                expired, size = [], 0
            if last_owned is not owned:
                limit = self._log.room_for_records(owned.index, TOMBSTONE_BYTES)
            txn.prepare_dead()
            expired.append((txn, key))
            size += record_bytes
            last_owned = owned
        if last_owned is not None:
            self._append_tombstones(last_owned, expired)

    def _append_tombstones(self, owned: OwnedPartition, expired: list[Expired]) -> None:
        index = owned.index
        if self._owned.partitions.get(index) is not owned:
            return  # the ids may be in use since: another coordinator had them
        records = encode_pairs([(key, None) for _, key in expired])
        self._log.append(index, records, len(expired), partial(self._on_removed, index, expired))

    def _on_removed(self, index: int, expired: list[Expired], error: ErrorCode, _: int) -> None:
        for txn, _key in expired:
            if error:
                txn.give_up_transition()
            elif txn.pending_state is TransactionState.DEAD:
                self._owned.forget(txn.transactional_id, txn)
        if error:
            logger.warning("%s-%d: %d unused transactional ids stay (%s)", self._owned.topic, index, len(expired), error.name)
        else:
            logger.info("%s-%d: removed %d unused transactional ids", self._owned.topic, index, len(expired))

    async def _all(self) -> AsyncIterator[tuple[OwnedPartition, TransactionMetadata]]:
        """All ids that are coordinated here when they are visited, some in each turn of the event loop."""
        for owned in list(self._owned.partitions.values()):
            if owned.is_loading:
                continue
            for txn in owned.states.each():
                if self._owned.partitions.get(owned.index) is owned and owned.states.get(txn.transactional_id) is txn:
                    yield owned, txn
                await pause()
