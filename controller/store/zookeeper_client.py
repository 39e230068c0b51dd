"""Runs one session with a ZooKeeper ensemble on kazoo, and hides kazoo's threads from all other modules.

kazoo reads and writes on a thread of its own. Replies and watch events are posted to the event loop in the order of
their arrival. So ZooKeeper's guarantee also holds on the loop: an event is delivered before the reply to any later
request.

When a connection breaks, `submit` refuses requests until the event loop has seen every request that was cut off and
calls `resume` for the next connection. So no later request overtakes one that has to be sent again.

By default kazoo starts a new session when the old one expired, drops watches with the connection, and delivers
callbacks on further threads. This file overrides all three.
"""

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, ConnectionDropped, ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL
from kazoo.protocol.states import Callback, KeeperState
from kazoo.protocol.states import EventType as KazooEventType
from kazoo.protocol.states import WatchedEvent as KazooEvent
from kazoo.retry import KazooRetry

from ottla.controller.store.metadata_store import EventType
from ottla.controller.store.sasl_exchange import LoginFailed, SaslExchange

logger = logging.getLogger(__name__)

RECONNECT_SECONDS = 0.05
MAX_RECONNECT_SECONDS = 1.0
CLOSE_SECONDS = 4.0
"""Longest wait for an orderly end of the session, seconds; then the connection is torn down and the session times out."""
EXPIRED = "it expired"

EARLINESS_MS = 410
"""Milliseconds by which kazoo's client pings too early: twice the average of what it subtracts, partly at random, from
a third of the session timeout."""

_SHARES = 3
"""Divisor of the session timeout that limits one attempt to connect. kazoo gives a single server the whole timeout, so
a session would end with its first unanswered attempt. A ZooKeeper that is starting may accept a connection and
forget it (its log has a NullPointerException in removeCnxn)."""

MAX_BROKEN_LOGINS = 5
"""Connections in a row that may break during the login of a session that has logged in before. ZooKeeper breaks the connection of a client
that it refuses, but a server that stops at this moment breaks it, too."""

_EVENT_TYPES = {
    KazooEventType.CREATED: EventType.CREATED,
    KazooEventType.CHANGED: EventType.DATA_CHANGED,
    KazooEventType.DELETED: EventType.DELETED,
    KazooEventType.CHILD: EventType.CHILDREN_CHANGED,
}


class Listener(Protocol):
    """Receives the events of a client, on the event loop."""

    def on_connected(self, generation: int, session_id: int, last_zxid: int) -> None:
        """A connection is established and the session lives; `last_zxid` is the highest zxid in a reply. Nothing is
        sent before `resume(generation)`."""

    def on_disconnected(self, reason: str) -> None:
        """The connection broke; `on_reply` was called before for every request that was cut off."""

    def on_session_ended(self, reason: str) -> None:
        """The session has ended (`EXPIRED`, or another reason); the client can only be closed."""

    def on_auth_failed(self) -> None:
        """ZooKeeper refused the credentials. `on_session_ended` follows."""

    def on_event(self, event_type: EventType, path: str) -> None:
        """A watch fired."""

    def on_reply(self, tag: object, result: Any, error: Exception | None) -> None:
        """The reply to the request submitted with `tag`, in the order of the requests. For requests that were cut off
        `error` satisfies `is_cut`."""


def is_cut(error: Exception | None) -> bool:
    """Whether the connection broke before the reply came: the request may or may not have been carried out."""
    return isinstance(error, ConnectionLoss)


def is_session_end(error: Exception | None) -> bool:
    """Whether ZooKeeper reported the end of the session."""
    return isinstance(error, SessionExpiredError | ConnectionClosedError)


class ZooKeeperClient:
    """One session. Created, started and closed on the event loop; `listener` is called there."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        tls: ssl.SSLContext | None,
        credentials: str | None,
        listener: Listener,
        begin_login: Callable[[str], SaslExchange] | None = None,
    ) -> None:
        """`credentials` are of ZooKeeper's digest scheme. `begin_login` begins the SASL exchange with a host."""
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._lock = threading.Lock()
        self._open = False
        self._generation = 0
        self._last_error = _LastError()
        self._closing: asyncio.Future[None] | None = None
        handler = _DirectHandler(tls)
        auth_data = [] if credentials is None else [("digest", credentials)]
        self._kazoo = _Kazoo(
            self._on_state,
            begin_login,
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            handler=handler,
            logger=self._last_error,
            connection_retry=KazooRetry(-1, RECONNECT_SECONDS, max_delay=MAX_RECONNECT_SECONDS, sleep_func=handler.sleep_func),
            auth_data=auth_data,
        )

    # On the event loop

    @property
    def last_error(self) -> str:
        """Reason why the last attempt to connect failed."""
        return self._last_error.text

    def start(self) -> None:
        """Begin to connect; the outcome goes to the listener."""
        self._kazoo.start_async()

    def resume(self, generation: int) -> bool:
        """Allow requests on this connection; False when it has broken already."""
        with self._lock:
            self._open = self._open or generation == self._generation
            return self._open

    def submit(self, request: Any, tag: object) -> bool:
        """Send a kazoo request; False when there is no connection, or `resume` was not called for it yet."""
        with self._lock:
            if not self._open:
                return False
            self._kazoo._call(request, _Reply(self, tag))
        return True

    async def close(self) -> None:
        """End the session and the thread. May be called twice."""
        if self._closing is None:
            self._closing = self._loop.create_future()
            with self._lock:
                self._open = False
                self._generation = -1
            threading.Thread(target=self._close, name="zookeeper-close", daemon=True).start()
        for _ in range(2):
            done, _pending = await asyncio.wait((self._closing,), timeout=CLOSE_SECONDS)
            if done:
                return
            # It does not answer, or does not even accept connections: break the connection.
            broken = self._kazoo._connection._socket
            if broken is not None:
                with suppress(OSError):
                    broken.shutdown(socket.SHUT_RDWR)

    def watch(self, event: KazooEvent) -> None:
        """Passed to kazoo with every watch; called on kazoo's thread."""
        event_type = _EVENT_TYPES.get(event.type)
        if event_type is not None:
            self.post(self._listener.on_event, event_type, event.path)

    # On other threads

    def reply(self, tag: object, result: Any, error: Exception | None) -> None:
        """Pass a reply on to the listener."""
        self.post(self._listener.on_reply, tag, result, error)

    def post(self, callback: Callable[..., None], *arguments: object) -> None:
        """Schedule `callback` on the event loop, after all that were posted before it."""
        # The loop is closed when its program ended without closing the store: no callback is left to run.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _on_state(self, state: str, before: bool) -> None:
        """Handle a change of kazoo's state; called before kazoo drops the requests in flight (`before`), and after."""
        if before:
            if state != KeeperState.CONNECTED:
                with self._lock:
                    self._open = False
            return
        if state == KeeperState.CONNECTED:
            with self._lock:
                if self._generation < 0:
                    return
                self._generation += 1
                generation = self._generation
            self.post(self._listener.on_connected, generation, self._kazoo._session_id, self._kazoo.last_zxid)
        elif state == KeeperState.CONNECTING:
            self.post(self._listener.on_disconnected, self._last_error.text)
        elif state == KeeperState.EXPIRED_SESSION:
            self._kazoo._stopped.set()  # otherwise kazoo begins a new session at once
            self.post(self._listener.on_session_ended, EXPIRED)
        elif self._generation >= 0:
            if state == KeeperState.AUTH_FAILED:
                self.post(self._listener.on_auth_failed)
            self.post(self._listener.on_session_ended, self._last_error.text)

    def _close(self) -> None:
        kazoo = self._kazoo
        for step in (kazoo.stop, kazoo._safe_close, kazoo.close):
            try:
                step()
            except Exception:  # a connection that breaks while it is being closed is closed
                logger.debug("a step of closing the connection to ZooKeeper failed", exc_info=True)
        self.post(self._closed)

    def _closed(self) -> None:
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)


class _Kazoo(KazooClient):  # type: ignore[misc]  # kazoo has no types
    def __init__(self, on_state: Callable[[str, bool], None], begin_login: Callable[[str], SaslExchange] | None, **options: Any) -> None:
        self._on_state = on_state
        super().__init__(**options)
        self._connection = _Connection(self, self._conn_retry.copy(), logger=self.logger)
        self._connection.begin_login = begin_login
        if begin_login is not None:
            self._connection.sasl_options = {}  # has kazoo call `_authenticate_with_sasl`

    def _session_callback(self, state: str) -> None:
        if state == self._state:
            return
        self._on_state(state, True)
        super()._session_callback(state)
        # A connection with a login counts once that has succeeded.
        if state != KeeperState.CONNECTED or self._connection.begin_login is None:
            self._on_state(state, False)

    def on_logged_in(self) -> None:
        """The login of the new connection has succeeded."""
        self._on_state(KeeperState.CONNECTED, False)

    def _reset_watchers(self) -> None:
        """Keep them: the store sets its watches again on the next connection."""


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """Pings as often as ZooKeeper's own client, and limits the wait for one server so that time remains for another
    attempt.

    kazoo's pings are up to 0.4 s early, and a session would outlive its broker by as much.
    """

    begin_login: Callable[[str], SaslExchange] | None = None
    _has_logged_in = False
    _broken_logins = 0
    """Connections in a row that broke during the login."""

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Log in, without the package that kazoo needs for that. Raises AuthFailedError for a refused login; ConnectionDropped for a
        connection that broke, so that kazoo tries again."""
        assert self.begin_login is not None
        exchange = self.begin_login(host)
        try:
            token, xid = exchange.first(), 1
            while (answer := exchange.answer(self._ask_sasl(token, xid, timeout))) is not None:
                token, xid = answer, xid + 1
        except (ConnectionDropped, LoginFailed) as error:
            if isinstance(error, ConnectionDropped):
                self._broken_logins += 1
                if self._has_logged_in and self._broken_logins <= MAX_BROKEN_LOGINS:
                    raise
            self.logger.warning("SASL: %s", f"the login by SASL failed: {error}")
            raise AuthFailedError(str(error)) from None
        self._has_logged_in, self._broken_logins = True, 0
        self.client.on_logged_in()

    def _ask_sasl(self, token: bytes, xid: int, timeout: float) -> bytes:
        self._submit(SASL(token), timeout, xid)
        header, buffer, offset = self._read_header(timeout)
        if header.xid != xid or header.err:
            raise LoginFailed(f"error {header.err}")
        challenge: bytes = SASL.deserialize(buffer, offset)[0]
        return challenge or b""

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_timeout_ms, connect_timeout_ms = super()._connect(host, hostip, port)
        return read_timeout_ms + EARLINESS_MS, connect_timeout_ms

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """One step of connecting; `timeout` in seconds."""
        return super()._invoke(min(timeout, self.client._session_timeout / 1000 / _SHARES), request, xid)


class _DirectHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Calls watches where they are read, on the thread of the connection, without further threads."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: object
    ) -> socket.socket:
        connection = socket.create_connection(address, timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return connection
        try:
            return self._tls.wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise

    def start(self) -> None:
        return

    def stop(self) -> None:
        return

    def dispatch_callback(self, callback: Callback) -> None:
        callback.func(*callback.args)


class _Reply:
    """Stands in for the future that kazoo expects with a request."""

    __slots__ = ("_client", "_tag")

    def __init__(self, client: ZooKeeperClient, tag: object) -> None:
        self._client = client
        self._tag = tag

    def set(self, value: Any = None) -> None:
        self._client.reply(self._tag, value, None)

    def set_exception(self, exception: Exception) -> None:
        self._client.reply(self._tag, None, exception)


class _LastError:
    """Stands in for kazoo's logger and keeps the text of its last warning. The store logs events itself and needs only
    the reason."""

    def __init__(self) -> None:
        self.text = "no answer"

    def warning(self, message: str, *arguments: object) -> None:
        if arguments:  # warnings without arguments are kazoo's progress reports
            self.text = str(arguments[-1]).removeprefix("socket connection error: ")

    def log(self, *_: object) -> None:
        return

    debug = info = exception = log
