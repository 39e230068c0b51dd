"""Stores the znode tree in a ZooKeeper ensemble.

Requests are sent in the order of their submission, with up to zookeeper.max.in.flight.requests in flight. Without a
connection they wait, as in Kafka's ZooKeeperClient.

Requests that a broken connection cut off are sent again first on the next connection, in their old order. So a write
whose reply was lost may be carried out twice, and its second attempt then reports NodeExists, BadVersion or NoNode.
Callers for which that matters check which client wrote, as `registration`, the election and `partition_states` do. A
repeated read may see changes that were made after it was first sent.

A request that is longer than ZooKeeper accepts by default is sent, because a ZooKeeper may have a larger jute.maxbuffer.
If the connection breaks at it, it fails instead of being sent again: a server that refuses it would close the next
connection, too, and answer no later request. For some minutes other requests of that length fail unsent.

Watches are set again on every new connection. Those that missed a change fire then, before any other request is sent.

Only ZooKeeper decides that a session expired, and reports it on the next connection. So a process that was suspended for longer than its
session timeout learns of the expiry before any of its writes can be acknowledged: ZooKeeper has closed its old connection.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.config.zookeeper_connect import parse_zookeeper_connect
from ottla.controller.errors import NoAuth, RequestTooLong, SessionExpired, StoreError, StoreUnavailable
from ottla.controller.store.metadata_store import (
    Children,
    EventType,
    Exists,
    Get,
    MetadataStore,
    Request,
    Result,
    SessionEvents,
    SetData,
    WatchedEvent,
)
from ottla.controller.store.sasl_exchange import SaslExchange
from ottla.controller.store.watches import Watches
from ottla.controller.store.zookeeper_client import EXPIRED, ZooKeeperClient, is_cut, is_session_end
from ottla.controller.store.zookeeper_wire import ZooKeeperWire, create_chroot, set_watches, too_long

logger = logging.getLogger(__name__)

LONG_REQUEST_PAUSE_S = 600.0
"""Seconds for which no long request is sent after one broke the connection. It may have broken for another reason."""

_VERSION_OF_NO_NODE = 2**31 - 1
"""The largest version of a node; none is written so often."""


class ZooKeeperSettings(NamedTuple):
    """The broker's configuration of ZooKeeper. `connect` is host:port,host:port with an optional /chroot."""

    connect: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    max_in_flight_requests: int = 10
    set_acl: bool = False
    credentials: str | None = None
    """user:password of the digest scheme."""
    tls_context: Callable[[], ssl.SSLContext] | None = None
    """Makes the TLS context of a new session, raises StoreUnavailable; None without TLS."""
    begin_login: Callable[[str], SaslExchange] | None = None
    """Begins the SASL exchange of a new connection to a host; None without SASL."""

    @property
    def hosts(self) -> str:
        """`connect` without the chroot."""
        return parse_zookeeper_connect(self.connect)[0]

    @property
    def chroot(self) -> str:
        """`/a/b`, or the empty string."""
        return parse_zookeeper_connect(self.connect)[1]


class ZooKeeperStore(MetadataStore):
    """One client of an ensemble. Belongs to the event loop that opened its session."""

    def __init__(self, settings: ZooKeeperSettings) -> None:
        """Nothing is connected before `open_session`."""
        self.settings = settings
        self.session_events: SessionEvents = SessionEvents()
        self._session: _Session | None = None
        self._on_expired: list[Callable[[], None]] = []
        self._ended: set[asyncio.Task[None]] = set()

    @property
    def session_id(self) -> int:
        """See MetadataStore."""
        return 0 if self._session is None else self._session.session_id

    @property
    def is_connected(self) -> bool:
        """See MetadataStore."""
        return self._session is not None and self._session.is_connected

    async def open_session(self) -> int:
        """See MetadataStore. Creates the chroot if it is missing.

        Raises StoreUnavailable after `connection_timeout_ms`, SessionExpired if the session ended as soon as it had
        begun.
        """
        if self._session is None:
            session = _Session(self.settings, self.session_events, self._expired)
            try:
                await session.open()
            except BaseException:
                await session.close()
                raise
            self._session = session
        return self._session.session_id

    async def close(self) -> None:
        """See MetadataStore. If the ensemble does not answer, the session is left to time out."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await asyncio.gather(*self._ended)

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        """See MetadataStore."""
        self._on_expired.append(callback)

    async def pipeline(self, requests: Sequence[Request]) -> list[Result | StoreError]:
        """See MetadataStore. Waits while there is no connection."""
        if self._session is None:
            raise SessionExpired("")
        return await self._session.carry_out(requests)

    async def forbidden(self, paths: Sequence[str]) -> list[str]:
        """See MetadataStore. Tries writes for a version that no node has: ZooKeeper checks the right before the version."""
        outcomes = await self.pipeline([SetData(path, b"", _VERSION_OF_NO_NODE) for path in paths])
        for outcome in outcomes:
            if isinstance(outcome, StoreUnavailable) and not isinstance(outcome, NoAuth):
                raise outcome
        return [path for path, outcome in zip(paths, outcomes, strict=True) if isinstance(outcome, NoAuth)]

    async def catch_up(self) -> None:
        """See MetadataStore. Tries a write for a version that no node has: its answer comes from the leader, after all earlier writes."""
        await self.pipeline([SetData("/", b"", _VERSION_OF_NO_NODE)])

    def _expired(self, session: "_Session") -> None:
        if session is not self._session:
            return
        self._session = None
        task = asyncio.get_running_loop().create_task(session.close(), name="zookeeper-session-ended")
        self._ended.add(task)
        task.add_done_callback(self._ended.discard)
        for callback in self._on_expired:
            callback()


class _Batch:
    """The requests of one pipeline and their outcomes so far.

    A request is translated when it can be sent: a hundred thousand at once would block the event loop for a second.
    """

    __slots__ = ("_requests", "_taken", "_to_wire", "done", "left", "outcomes")

    def __init__(
        self, requests: Sequence[Request], to_wire: Callable[[Request], Any], done: "asyncio.Future[list[Result | StoreError]]"
    ) -> None:
        self._requests = requests
        self._taken = 0
        self._to_wire = to_wire
        self.outcomes: list[Result | StoreError] = [None] * len(requests)
        self.left = len(requests)
        self.done = done

    def take(self) -> "_Operation | None":
        """The next request to send; None if all were taken."""
        position = self._taken
        if position == len(self._requests):
            return None
        self._taken += 1
        request = self._requests[position]
        return _Operation(self, position, request, self._to_wire(request))


class _Operation:
    """One request in flight or waiting."""

    __slots__ = ("batch", "position", "request", "sent", "sent_at")

    def __init__(self, batch: _Batch, position: int, request: Request, sent: Any) -> None:
        self.batch = batch
        self.position = position
        self.request = request
        self.sent = sent
        self.sent_at: float | None = None


_WATCHES_SET = object()


class _Session:
    """One session from its first connection to its end: waiting requests, requests in flight, watches."""

    def __init__(self, settings: ZooKeeperSettings, events: SessionEvents, on_expired: Callable[["_Session"], None]) -> None:
        self.session_id = 0
        self._settings = settings
        self._events = events
        self._on_expired = on_expired
        tls = None if settings.tls_context is None else settings.tls_context()
        self._client = ZooKeeperClient(settings.hosts, settings.session_timeout_ms, tls, settings.credentials, self, settings.begin_login)
        self._wire = ZooKeeperWire(settings.chroot, settings.set_acl, self._client.watch)
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_connected = False
        """Whether requests can be sent."""
        self._ended = self._expired = False
        self._batches: deque[_Batch] = deque()
        """Those with requests that were not taken."""
        self._waiting: deque[_Operation] = deque()
        """The requests that were taken, and are sent first."""
        self._under_way: deque[_Operation] = deque()
        self._cut: list[_Operation] = []
        self._no_long_requests_until: float | None = None
        """By the loop's clock; None while none has broken a connection."""
        self._watches = Watches()
        self._watched_while_missing: set[str] = set()

    async def open(self) -> None:
        """Raises StoreUnavailable, SessionExpired."""
        settings = self._settings
        self._client.start()
        try:
            async with asyncio.timeout(settings.connection_timeout_ms / 1000):
                await self._connected
                await self._make_chroot()
                self._check_not_ended()
        except TimeoutError:
            raise StoreUnavailable(
                f"zookeeper.connect={settings.connect}",
                f"no session with ZooKeeper within {settings.connection_timeout_ms} ms (zookeeper.connection.timeout.ms): "
                f"{self._client.last_error}. Start ZooKeeper, or correct zookeeper.connect",
            ) from None
        except SessionExpired:
            if self._expired:
                raise
            raise StoreUnavailable(
                f"zookeeper.connect={settings.connect}", f"ZooKeeper ended the session: {self._client.last_error}"
            ) from None

    async def close(self) -> None:
        """End the session if it still exists, without calling `on_expired`."""
        self._end()
        await self._client.close()

    async def carry_out(self, requests: Sequence[Request]) -> list[Result | StoreError]:
        """Raises SessionExpired."""
        self._check_not_ended()
        if not requests:
            return []
        return await self._add(requests, self._wire)

    async def _add(self, requests: Sequence[Request], wire: ZooKeeperWire) -> list[Result | StoreError]:
        batch = _Batch(requests, wire.to_wire, asyncio.get_running_loop().create_future())
        self._batches.append(batch)
        self._send()
        return await batch.done

    def _check_not_ended(self) -> None:
        if self._ended:
            raise SessionExpired("")

    async def _make_chroot(self) -> None:
        if self._settings.chroot:
            self._check_not_ended()
            outside = ZooKeeperWire("", self._settings.set_acl, self._client.watch)
            outcomes = await self._add(create_chroot(self._settings.chroot), outside)
            if isinstance(outcomes[-1], str):
                logger.info("created %s in ZooKeeper, the path of zookeeper.connect=%s", self._settings.chroot, self._settings.connect)

    def _send(self) -> None:
        """Send waiting requests, up to the limit of requests in flight."""
        waiting = self._waiting
        while self.is_connected and len(self._under_way) < self._settings.max_in_flight_requests and self._has_waiting():
            operation = waiting[0]
            if self._no_long_requests_until is not None and (refusal := self._refusal(operation)) is not None:
                waiting.popleft()
                self._refuse(operation, refusal)
                continue
            stopwatch = self._events.stopwatch
            if stopwatch is not None:
                operation.sent_at = stopwatch()
            if not self._client.submit(operation.sent, operation):
                return  # the connection just broke: `on_connected` continues
            self._under_way.append(waiting.popleft())

    def _has_waiting(self) -> bool:
        """Whether there is a request to send. It is the first one of `_waiting` then."""
        while not self._waiting and self._batches:
            operation = self._batches[0].take()
            if operation is None:
                self._batches.popleft()
            else:
                self._waiting.append(operation)
        return bool(self._waiting)

    def _refusal(self, operation: _Operation) -> RequestTooLong | None:
        """The outcome of a request that is too long to be sent at present."""
        if self._no_long_requests_until is not None and asyncio.get_running_loop().time() < self._no_long_requests_until:
            return too_long(operation.request, operation.sent)
        self._no_long_requests_until = None
        return None

    def _refuse(self, operation: _Operation, refusal: RequestTooLong) -> None:
        logger.error("refused a request: %s", refusal)
        self._finish(operation, refusal)

    def _end(self) -> None:
        """End the session: all requests that wait or are in flight raise SessionExpired."""
        if self._ended:
            return
        self._ended = True
        self.is_connected = False
        self.session_id = 0
        self._watches.clear()
        if not self._connected.done():
            self._connected.set_exception(SessionExpired(""))
            self._connected.exception()  # marks the exception as retrieved, as nothing may await it
        for batch in (*(operation.batch for operation in (*self._cut, *self._under_way, *self._waiting)), *self._batches):
            if not batch.done.done():
                batch.done.set_exception(SessionExpired(""))
        self._cut, self._under_way, self._waiting, self._batches = [], deque(), deque(), deque()

    # Events of the client

    def on_connected(self, generation: int, session_id: int, last_zxid: int) -> None:
        """See Listener."""
        if self._ended or not self._client.resume(generation):
            return
        if self.session_id:
            logger.info("connected to ZooKeeper %s again", self._settings.connect)
        else:
            logger.info("session %#x with ZooKeeper %s", session_id & (2**64 - 1), self._settings.connect)
        self.session_id = session_id
        self.is_connected = True
        self._events.connects += 1
        self._waiting.extendleft(reversed(self._cut))
        self._cut = []
        missing = self._watched_while_missing
        absolute = self._wire.absolute
        data = [absolute(path) for path in self._watches.data_paths if path not in missing]
        children = [absolute(path) for path in self._watches.children_paths]
        for request in set_watches(last_zxid, data, [absolute(path) for path in missing], children):
            self._client.submit(request, _WATCHES_SET)
        self._send()
        if not self._connected.done():
            self._connected.set_result(None)

    def on_disconnected(self, reason: str) -> None:
        """See Listener."""
        if self.is_connected:
            logger.warning("lost the connection to ZooKeeper %s (%s); trying to connect again", self._settings.connect, reason)
            self._events.disconnects += 1
        self.is_connected = False

    def on_session_ended(self, reason: str) -> None:
        """See Listener."""
        if self._ended:
            return
        logger.warning("session %#x with ZooKeeper %s ended: %s", self.session_id & (2**64 - 1), self._settings.connect, reason)
        self._events.expirations += 1
        self._expired = reason is EXPIRED
        self._end()
        self._on_expired(self)

    def on_auth_failed(self) -> None:
        """See Listener."""
        self._events.auth_failures += 1

    def on_event(self, event_type: EventType, path: str) -> None:
        """See Listener."""
        event = WatchedEvent(event_type, self._wire.relative(path))
        if event_type is not EventType.CHILDREN_CHANGED:
            self._watched_while_missing.discard(event.path)
        for watch in self._watches.take(event):
            try:
                watch(event)
            except Exception:
                logger.exception("the watch on %s failed", event.path)

    def on_reply(self, tag: object, result: Any, error: Exception | None) -> None:
        """See Listener."""
        if not isinstance(tag, _Operation):
            if error is not None and not is_cut(error):
                self.on_session_ended(f"it refused to set watches: {error!r}")
            return
        if self._ended:
            return
        if is_session_end(error):
            self.on_session_ended(EXPIRED)
            return
        self._under_way.popleft()
        if is_cut(error):
            self._events.disconnects += self.is_connected
            self.is_connected = False
            if (refusal := too_long(tag.request, tag.sent)) is not None:
                self._no_long_requests_until = asyncio.get_running_loop().time() + LONG_REQUEST_PAUSE_S
                self._refuse(tag, refusal)
            elif not tag.batch.done.cancelled():
                self._cut.append(tag)
            return
        stopwatch = self._events.stopwatch
        if stopwatch is not None and tag.sent_at is not None:
            self._events.on_answered(stopwatch() - tag.sent_at)
        outcome = self._wire.outcome(tag.request, result, error)
        if error is None:
            self._keep_watch(tag.request, outcome)
        self._finish(tag, outcome)
        self._send()

    def _finish(self, operation: _Operation, outcome: Result | StoreError) -> None:
        batch = operation.batch
        batch.outcomes[operation.position] = outcome
        batch.left -= 1
        if not batch.left and not batch.done.done():
            batch.done.set_result(batch.outcomes)

    def _keep_watch(self, request: Request, outcome: Result | StoreError) -> None:
        """Keep the watch of a read that succeeded."""
        if not isinstance(request, Get | Exists | Children) or request.watch is None or isinstance(outcome, StoreError):
            return
        if isinstance(request, Children):
            self._watches.add_children(request.path, request.watch)
            return
        self._watches.add_data(request.path, request.watch)
        if outcome is None:
            self._watched_while_missing.add(request.path)
