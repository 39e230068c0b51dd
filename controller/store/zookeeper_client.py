"""One session with a ZooKeeper ensemble on kazoo: the only file that sees kazoo's threads.

kazoo reads and writes on a thread of its own. What it reads is posted to the event loop in the order in which it came, replies and watch
events alike, so that ZooKeeper's promise holds there too: an event is seen before the reply to any later request.

A connection that breaks shuts the gate: from then on `submit` refuses until the event loop has seen every request that was cut off and
opens the gate of the next connection with `resume`. So no later request overtakes one that has to be sent again.

kazoo would begin a new session by itself when the old one expired, forget watches with the connection and deliver callbacks on further
threads; this file overrides all three.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import Callback, KeeperState
from kazoo.protocol.states import EventType as KazooEventType
from kazoo.protocol.states import WatchedEvent as KazooEvent
from kazoo.retry import KazooRetry

from controller.store.metadata_store import EventType

RECONNECT_SECONDS = 0.05
MAX_RECONNECT_SECONDS = 1.0
CLOSE_SECONDS = 4.0
"""How long the polite end of a session may take, before the connection is torn down and the session left to time out."""
EXPIRED = "it expired"

EARLINESS_MS = 410
"""Twice what kazoo takes, on average and at random, from the third of the session's time after which a silent client pings."""

_SHARES = 3
"""Of the session's time, an attempt to connect gets one of so many at most: kazoo gives an only server all of it, and a session whose
first attempt is not answered would be over with it. A ZooKeeper that is starting may take a connection and forget it (its log has a
NullPointerException in removeCnxn)."""

_EVENT_TYPES = {
    KazooEventType.CREATED: EventType.CREATED,
    KazooEventType.CHANGED: EventType.DATA_CHANGED,
    KazooEventType.DELETED: EventType.DELETED,
    KazooEventType.CHILD: EventType.CHILDREN_CHANGED,
}


class TlsFiles(NamedTuple):
    """PEM files for TLS towards ZooKeeper. `key_store` holds the key with its certificate, `trust_store` the certificates trusted."""

    key_store: str | None = None
    key_password: str | None = None
    trust_store: str | None = None
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Trusts what `trust_store` holds and nothing else; without it, what the machine trusts. Raises OSError for unusable files."""
        context = ssl.create_default_context(cafile=self.trust_store)
        context.check_hostname = self.check_hostname
        if self.key_store is not None:
            # Never ask a terminal for the password.
            context.load_cert_chain(self.key_store, password=self.key_password or "")
        return context


class Listener(Protocol):
    """Who is told, on the event loop."""

    def on_connected(self, generation: int, session_id: int, last_zxid: int) -> None:
        """A connection stands, the session lives; `last_zxid` is the highest a reply told. Nothing is sent before `resume(generation)`."""

    def on_disconnected(self, reason: str) -> None:
        """The connection broke; every request cut off was told before."""

    def on_session_ended(self, reason: str) -> None:
        """The session is gone for good (`EXPIRED`, or why else); the client is of no further use but to be closed."""

    def on_auth_failed(self) -> None:
        """ZooKeeper refused the credentials. `on_session_ended` follows."""

    def on_event(self, event_type: EventType, path: str) -> None:
        """A watch fired."""

    def on_reply(self, tag: object, result: Any, error: Exception | None) -> None:
        """The reply to the request submitted with `tag`; replies come in the order of the requests. `is_cut` knows those never sent."""


def is_cut(error: Exception | None) -> bool:
    """Whether the connection broke before the reply came: nobody knows whether the request was carried out."""
    return isinstance(error, ConnectionLoss)


def is_session_end(error: Exception | None) -> bool:
    """Whether ZooKeeper says that the session is gone."""
    return isinstance(error, SessionExpiredError | ConnectionClosedError)


class ZooKeeperClient:
    """One session. Made, started and closed on the event loop; `listener` is called there."""

    def __init__(
        self, hosts: str, session_timeout_ms: int, tls: ssl.SSLContext | None, credentials: str | None, listener: Listener
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._lock = threading.Lock()
        self._open = False
        self._generation = 0
        self._said = _LastWords()
        self._closing: asyncio.Future[None] | None = None
        handler = _DirectHandler(tls)
        auth_data = [] if credentials is None else [("digest", credentials)]
        self._kazoo = _Kazoo(
            self._on_state,
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            handler=handler,
            logger=self._said,
            connection_retry=KazooRetry(-1, RECONNECT_SECONDS, max_delay=MAX_RECONNECT_SECONDS, sleep_func=handler.sleep_func),
            auth_data=auth_data,
        )

    # On the event loop

    @property
    def last_words(self) -> str:
        """Why the last attempt to connect failed."""
        return self._said.text

    def start(self) -> None:
        """Begin to connect; the listener is told."""
        self._kazoo.start_async()

    def resume(self, generation: int) -> bool:
        """Open the gate of this connection; False when it is broken already."""
        with self._lock:
            self._open = self._open or generation == self._generation
            return self._open

    def submit(self, request: Any, tag: object) -> bool:
        """Send a request of kazoo's; False when there is no connection to send it on, or it was not resumed yet."""
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
            # It does not answer, or it does not even take connections: no more manners.
            broken = self._kazoo._connection._socket
            if broken is not None:
                with suppress(OSError):
                    broken.shutdown(socket.SHUT_RDWR)

    def watch(self, event: KazooEvent) -> None:
        """Given to kazoo with every watch; called on its thread."""
        event_type = _EVENT_TYPES.get(event.type)
        if event_type is not None:
            self.post(self._listener.on_event, event_type, event.path)

    # On other threads

    def reply(self, tag: object, result: Any, error: Exception | None) -> None:
        """Pass a reply on to the listener."""
        self.post(self._listener.on_reply, tag, result, error)

    def post(self, callback: Callable[..., None], *arguments: object) -> None:
        """Have `callback` called on the event loop, after all that were posted before."""
        # The loop is closed when its program ended without closing the store: then nobody is left to tell.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _on_state(self, state: str, before: bool) -> None:
        """kazoo's session changes its state: called before it drops the requests under way, and after."""
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
            self.post(self._listener.on_disconnected, self._said.text)
        elif state == KeeperState.EXPIRED_SESSION:
            self._kazoo._stopped.set()  # or it would begin a new session at once
            self.post(self._listener.on_session_ended, EXPIRED)
        elif self._generation >= 0:
            if state == KeeperState.AUTH_FAILED:
                self.post(self._listener.on_auth_failed)
            self.post(self._listener.on_session_ended, self._said.text)

    def _close(self) -> None:
        kazoo = self._kazoo
        with suppress(Exception):  # a connection that breaks while it is being closed is closed
            kazoo.stop()
        with suppress(Exception):
            kazoo._safe_close()
        with suppress(Exception):
            kazoo.close()
        self.post(self._closed)

    def _closed(self) -> None:
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)


class _Kazoo(KazooClient):  # type: ignore[misc]  # kazoo has no types
    def __init__(self, on_state: Callable[[str, bool], None], **options: Any) -> None:
        self._on_state = on_state
        super().__init__(**options)
        self._connection = _Connection(self, self._conn_retry.copy(), logger=self.logger)

    def _session_callback(self, state: str) -> None:
        if state == self._state:
            return
        self._on_state(state, True)
        super()._session_callback(state)
        self._on_state(state, False)

    def _reset_watchers(self) -> None:
        """Keep them: the store sets its watches again on the next connection."""


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """Pings as often as ZooKeeper's own client, and waits for a server no longer than leaves time for another attempt.

    kazoo's pings are up to 0.4 s earlier: by so much a session outlives its broker.
    """

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_timeout_ms, connect_timeout_ms = super()._connect(host, hostip, port)
        return read_timeout_ms + EARLINESS_MS, connect_timeout_ms

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """A step of connecting, in seconds."""
        return super()._invoke(min(timeout, self.client._session_timeout / 1000 / _SHARES), request, xid)


class _DirectHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Calls watches where they are read, on the thread of the connection; there are no other threads."""

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
    """What kazoo takes for the future of a request."""

    __slots__ = ("_client", "_tag")

    def __init__(self, client: ZooKeeperClient, tag: object) -> None:
        self._client = client
        self._tag = tag

    def set(self, value: Any = None) -> None:
        self._client.reply(self._tag, value, None)

    def set_exception(self, exception: Exception) -> None:
        self._client.reply(self._tag, None, exception)


class _LastWords:
    """What kazoo takes for its logger. The store says in its own words what happens; of kazoo's it needs the reason."""

    def __init__(self) -> None:
        self.text = "no answer"

    def warning(self, message: str, *arguments: object) -> None:
        if arguments:  # the others are steps of its own
            self.text = str(arguments[-1]).removeprefix("socket connection error: ")

    def log(self, *_: object) -> None:
        return

    debug = info = exception = log
