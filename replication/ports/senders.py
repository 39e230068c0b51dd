"""Sends requests to other brokers, each broker's in order, and repeats them until they are answered.

`Senders` gives every broker a queue and a task of its own, with one request in flight, so that a slow broker delays no other. As in Apache
Kafka, there is no barrier between brokers. The `Channel` knows the kind of the requests and their transport. A channel may also build a new
request at each attempt, from everything that is due for the broker. A request that cannot be encoded is dropped, because no attempt would
succeed and the next requests would wait for it.

The controller uses it for its requests (`ottla.controller.state.channels`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from ottla.protocol.schema.wire import InvalidValue, UnsupportedField

logger = logging.getLogger(__name__)

Broker = TypeVar("Broker")
Request = TypeVar("Request")
Response = TypeVar("Response")
Request_contra = TypeVar("Request_contra", contravariant=True)
Response_co = TypeVar("Response_co", covariant=True)

OnSent: TypeAlias = Callable[[int, float], None]
"""Broker id, seconds that a request waited in its queue."""

RETRY_BACKOFF_SECONDS = 0.1
"""Pause before the second attempt, in seconds."""

MAX_BACKOFF_FACTOR = 8
"""Largest pause between attempts, in multiples of the first; pauses double up to it. A broker that is back is added
again, and gets requests at once."""


_NEVER_SENT: Final = (InvalidValue, UnsupportedField)
"""The errors of a request that cannot be encoded."""


class Channel(Protocol[Request_contra, Response_co]):
    """Delivers requests to one broker."""

    async def send(self, request: Request_contra) -> Response_co:
        """Send a request and wait for its answer. Raises OSError if it could not be delivered; it may be sent again."""

    async def close(self) -> None:
        """Release the channel's resources. A `send` that waits raises OSError."""


class Senders(Generic[Broker, Request, Response]):
    """The senders to all brokers. `Broker` has the data that `channel_to` needs of a broker, such as its address."""

    def __init__(
        self,
        name: str,
        channel_to: Callable[[Broker], Channel[Request, Response]],
        monotonic: Callable[[], float],
        retry_backoff_seconds: float = RETRY_BACKOFF_SECONDS,
    ) -> None:
        """`name` is the sender's name in the log."""
        self.on_sent: OnSent | None = None
        """Called for every request that leaves its queue, for metrics."""
        self.name = name
        self.monotonic = monotonic
        self.retry_backoff_seconds = retry_backoff_seconds
        self._channel_to = channel_to
        self._senders: dict[int, _Sender[Request, Response]] = {}
        self._halted: list[_Sender[Request, Response]] = []

    @property
    def queue_sizes(self) -> dict[int, int]:
        """Number of waiting requests, by broker."""
        return {broker_id: sender.queue_size for broker_id, sender in self._senders.items()}

    def add(self, broker_id: int, broker: Broker) -> None:
        """Begin to send to a broker, unless that has begun already."""
        if broker_id not in self._senders:
            self._senders[broker_id] = _Sender(self, broker_id, self._channel_to(broker))

    async def renew(self, broker_id: int, broker: Broker) -> None:
        """Send queued requests, and the one in flight, to the broker's new address."""
        sender = self._senders.get(broker_id)
        if sender is not None:
            await sender.renew(self._channel_to(broker))

    async def remove(self, broker_id: int) -> None:
        """Stop sending to a broker; queued requests are dropped."""
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            await sender.close()

    def halt(self) -> None:
        """Stop all sending now, dropping queued requests; `remove_all` releases the remaining resources."""
        for sender in self._senders.values():
            sender.halt()
        self._halted += self._senders.values()
        self._senders.clear()

    async def remove_all(self) -> None:
        """Stop sending to all brokers."""
        self.halt()
        halted, self._halted = self._halted, []
        for sender in halted:
            await sender.close()

    def send(self, broker_id: int, request: Request, on_response: Callable[[Response], None]) -> bool:
        """Queue a request. Returns False, without queueing it, for a broker that was not added or was removed."""
        sender = self._senders.get(broker_id)
        if sender is None:
            return False
        sender.put(request, on_response)
        return True

    async def delivered(self) -> None:
        """Wait until every request that is queued now has been answered."""
        for sender in list(self._senders.values()):
            await sender.delivered()


class _Sender(Generic[Request, Response]):
    """Queue and task for one broker."""

    def __init__(self, senders: Senders[Broker, Request, Response], broker_id: int, channel: Channel[Request, Response]) -> None:
        self._senders = senders
        self._broker_id = broker_id
        self._channel = channel
        self._queue: deque[tuple[Request, Callable[[Response], None], float]] = deque()
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"{senders.name}-to-broker-{broker_id}")

    def put(self, request: Request, on_response: Callable[[Response], None]) -> None:
        self._queue.append((request, on_response, self._senders.monotonic()))
        self._idle.clear()
        self._filled.set()

    @property
    def queue_size(self) -> int:
        return len(self._queue)

    async def renew(self, channel: Channel[Request, Response]) -> None:
        old, self._channel = self._channel, channel
        await old.close()

    async def delivered(self) -> None:
        await self._idle.wait()

    def halt(self) -> None:
        self._queue.clear()
        self._task.cancel()

    async def close(self) -> None:
        self.halt()
        await asyncio.gather(self._task, return_exceptions=True)
        self._idle.set()
        await self._channel.close()

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            while self._queue:
                request, on_response, queued_at = self._queue.popleft()
                senders = self._senders
                if senders.on_sent is not None:
                    senders.on_sent(self._broker_id, senders.monotonic() - queued_at)
                try:
                    response = await self._deliver(request)
                except _NEVER_SENT as error:
                    logger.error(
                        "%s: %s to broker %d cannot be encoded (%s); it is dropped, and the broker does not learn what it says",
                        senders.name, type(request).__name__, self._broker_id, error,
                    )  # fmt: skip
                    continue
                try:
                    on_response(response)
                except Exception:  # a fault of this broker, in a task without a caller; the next requests follow
                    logger.exception("%s: the answer of broker %d to a request could not be applied", senders.name, self._broker_id)
            self._filled.clear()
            self._idle.set()

    async def _deliver(self, request: Request) -> Response:
        """Send until the request is answered, because a broker must miss no request while it may be alive. Raises _NEVER_SENT."""
        failures = 0
        while True:
            try:
                response = await self._channel.send(request)
            except _NEVER_SENT:
                raise
            except Exception as error:  # other errors than OSError are faults of this broker, which must not end the task
                if not failures:
                    logger.warning(
                        "%s cannot send %s to broker %d (%s); retrying until it succeeds or the broker's session ends",
                        self._senders.name, type(request).__name__, self._broker_id, error,
                        exc_info=None if isinstance(error, OSError) else error,
                    )  # fmt: skip
                await asyncio.sleep(self._senders.retry_backoff_seconds * min(2**failures, MAX_BACKOFF_FACTOR))
                failures += 1
            else:
                if failures:
                    logger.info("%s reaches broker %d again, after %d attempts", self._senders.name, self._broker_id, failures)
                return response
