"""Removes expired producers of all logs every `producer.id.expiration.check.interval.ms`, without blocking the event
loop.

Owned by `LogManager`. A single log may have 100,000 producers, so the check of a log pauses, too.
"""

from collections.abc import Iterable
from itertools import islice

from ottla.pauses import pause
from ottla.storage.disk.background import Background
from ottla.storage.disk.clock import Clock
from ottla.storage.disk.rounds import Rounds
from ottla.storage.log.partition_log import PartitionLog

_TOGETHER = 100
"""Producers checked between two pauses; each takes half a microsecond."""


class ProducerExpirations:
    """Runs one round at a time."""

    __slots__ = ("_background", "_clock", "_expiration_ms", "_rounds")

    def __init__(self, background: Background, clock: Clock) -> None:
        self._background = background
        self._clock = clock
        self._expiration_ms = 0
        self._rounds: Rounds[PartitionLog] = Rounds(background, "producer-expiration", self._check)

    def check(self, logs: Iterable[PartitionLog], expiration_ms: int) -> None:
        """Checks `logs`, now and after pauses; continues the last round if it is still in progress."""
        self._expiration_ms = expiration_ms
        self._rounds.begin(logs)

    async def _check(self, each: PartitionLog) -> None:
        state = each.producer_state
        state.producer_id_expiration_ms = self._expiration_ms
        state.remove_expired_verifications(self._clock.now_ms())
        left = iter(list(state.state.producers))
        while not each.is_closed and not self._background.is_closed and (some := list(islice(left, _TOGETHER))):
            each.producer_state.remove_expired_producers(self._clock.now_ms(), some)
            await pause()
