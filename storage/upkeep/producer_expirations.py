"""Removes expired producers of all logs every `producer.id.expiration.check.interval.ms`, without blocking the event
loop.

Owned by `LogManager`. A thousand producers are checked per turn of the loop; a single log may have 100,000.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from ottla.storage.disk.background import Background
from ottla.storage.disk.clock import Clock
from ottla.storage.disk.rounds import Rounds
from ottla.storage.log.partition_log import PartitionLog

PRODUCERS_PER_TURN = 1000
"""Producers checked per turn, half a millisecond."""
_LISTED_PER_LOOKED_AT = 50
_LOG_COSTS = 6
"""Cost of a log, in units of a checked producer."""


class ProducerExpirations:
    """Runs one round at a time."""

    __slots__ = ("_clock", "_expiration_ms", "_rounds")

    def __init__(self, background: Background, clock: Clock) -> None:
        self._clock = clock
        self._expiration_ms = 0
        self._rounds: Rounds[PartitionLog] = Rounds(background, "producer-expiration", self._check, lambda: None)

    def check(self, logs: Iterable[PartitionLog], expiration_ms: int) -> None:
        """Checks `logs`, in this and the following turns; continues the last round if it is still in progress."""
        self._expiration_ms = expiration_ms
        self._rounds.begin(logs, PRODUCERS_PER_TURN)

    def _check(self, each: PartitionLog) -> Iterator[int]:
        state = each.producer_state
        state.producer_id_expiration_ms = self._expiration_ms
        state.remove_expired_verifications(self._clock.now_ms())
        producer_ids = list(state.state.producers)
        cost = len(producer_ids) // _LISTED_PER_LOOKED_AT
        if cost >= PRODUCERS_PER_TURN:
            yield cost
            cost = 0
        cost += _LOG_COSTS
        left = iter(producer_ids)
        while (some := list(islice(left, PRODUCERS_PER_TURN))) and not each.is_closed:
            each.producer_state.remove_expired_producers(self._clock.now_ms(), some)
            yield cost + len(some)
            cost = 0
        yield cost
