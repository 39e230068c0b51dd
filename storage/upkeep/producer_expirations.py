"""Removes expired producers of all logs every `producer.id.expiration.check.interval.ms`, without blocking the event
loop.

Owned by `LogManager`. A thousand producers are checked per turn of the loop; a single log may have 100,000.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from storage.disk.background import Background
from storage.disk.clock import Clock
from storage.log.partition_log import PartitionLog

PRODUCERS_PER_TURN = 1000
"""Producers checked per turn, half a millisecond."""
_LISTED_PER_LOOKED_AT = 50
_LOGS_PER_TURN = 150
"""Logs checked per turn, half a millisecond."""
_NAME = "producer-expiration"


class ProducerExpirations:
    """Runs one round at a time."""

    __slots__ = ("_background", "_clock", "_expiration_ms", "_of_one", "_producer_ids", "_waiting")

    def __init__(self, background: Background, clock: Clock) -> None:
        self._background = background
        self._clock = clock
        self._expiration_ms = 0
        self._waiting: deque[PartitionLog] = deque()
        self._of_one: PartitionLog | None = None
        """The log being checked, with its remaining producers in `_producer_ids`."""
        self._producer_ids: Iterator[int] = iter(())

    def check(self, logs: Iterable[PartitionLog], expiration_ms: int) -> None:
        """Checks `logs`, in this and the following turns; continues the last round if it is still in progress."""
        self._expiration_ms = expiration_ms
        if self._of_one is None and not self._waiting:
            self._waiting.extend(logs)
            self._check_some()

    def _check_some(self) -> None:
        now_ms = self._clock.now_ms()
        producers_left, logs_left = PRODUCERS_PER_TURN, _LOGS_PER_TURN
        while producers_left > 0 and logs_left > 0:
            each = self._of_one
            if each is None:
                if not self._waiting:
                    return
                each = self._of_one = self._waiting.popleft()
                each.producer_state.producer_id_expiration_ms = self._expiration_ms
                each.producer_state.remove_expired_verifications(now_ms)
                producer_ids = list(each.producer_state.state.producers)
                self._producer_ids = iter(producer_ids)
                producers_left -= len(producer_ids) // _LISTED_PER_LOOKED_AT
                logs_left -= 1
                if producers_left <= 0:
                    break
            some = list(islice(self._producer_ids, producers_left))
            if some and not each.is_closed:
                each.producer_state.remove_expired_producers(now_ms, some)
                producers_left -= len(some)
            else:
                self._of_one = None
        self._background.schedule(_NAME, 0, 0, self._check_some)
