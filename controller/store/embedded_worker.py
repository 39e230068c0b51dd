"""Runs the thread behind an embedded store, which owns the connection to the file, the watches and the session's lock.

Sessions are rows in the file. `session_lock` detects whether a session's owner lives; any process that finds an owner
dead ends that session. Every batch of requests is one transaction that first checks that its own session still exists.
So a process that was stopped for longer than its timeout cannot write under the session that others ended.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from ottla.controller.errors import NoNode, SessionExpired, StoreError, StoreUnavailable
from ottla.controller.store.embedded_watches import WatchesOverFile
from ottla.controller.store.metadata_store import Children, Exists, Get, Request, Result, Watch, WatchedEvent
from ottla.controller.store.session_lock import ObservedSession, OwnSessionLock
from ottla.controller.store.sqlite_tree import SqliteTree
from ottla.controller.store.tree import Attempt, apply, delete_ephemerals
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.04
"""Longest time for which a change by another process, or its death, goes unnoticed, seconds."""

REQUESTS_PER_BEAT = 1000
"""Requests of one batch between two looks whether a heartbeat is due: a batch for all partitions takes seconds."""

T = TypeVar("T")


class EmbeddedWorker:
    """`submit` and `stop` are called on the event loop; all other methods run on the thread."""

    def __init__(
        self,
        path: str,
        clock: Clock,
        session_timeout_ms: int,
        loop: asyncio.AbstractEventLoop,
        on_expired: Callable[[int], None],
        *,
        is_durable: bool,
    ) -> None:
        """Start the thread; it opens the file with its first job. `on_expired` is called on the loop."""
        self._path = path
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._loop = loop
        self._on_expired = on_expired
        self._is_durable = is_durable
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._session_id = 0
        self._lock: OwnSessionLock | None = None
        self._observed: dict[int, ObservedSession] = {}
        self._looked_at = self._beaten_at = clock.monotonic()
        self._trouble = ""
        """Text of the error that was logged last, so that a repeated one is not logged again; empty after a success."""
        self._opened: SqliteTree | None = None
        self._watches = WatchesOverFile()
        self._has_unseen_changes = False
        """Whether others have committed, and the watches could not be compared with the tree since."""
        self._thread = threading.Thread(target=self._run, name="metadata-store", daemon=True)
        self._thread.start()

    # On the event loop

    async def submit(self, job: Callable[[], T]) -> T:
        """Run `job` on the thread, after all jobs submitted before it; returns its result or raises its exception."""
        future: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = job()
            except Exception as error:
                self._post(_fail, future, error)
            else:
                self._post(_succeed, future, result)

        self._jobs.put(run)
        return await future

    async def stop(self) -> None:
        """End the session, close the file and end the thread."""
        try:
            await self.submit(self._close)
        finally:
            self._jobs.put(None)
            # The thread's only remaining job is to take the None: this waits for microseconds.
            self._thread.join()

    # On the thread

    @property
    def _tree(self) -> SqliteTree:
        if self._opened is None:
            self._opened = SqliteTree(self._path, is_durable=self._is_durable)
        return self._opened

    def _lock_path(self, session_id: int) -> str:
        """Beside the database: Kafka ignores files in a log directory, but takes every directory for a partition."""
        return f"{self._path}.session-{session_id}"

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=POLL_SECONDS)
            except Empty:
                job = self._look_around
            if job is None:
                return
            job()
            if self._clock.monotonic() - self._looked_at > POLL_SECONDS:
                self._look_around()

    def _look_around(self) -> None:
        """Do the periodic work: send the heartbeat, check watches against changes of other processes, end the sessions
        of dead owners."""
        if self._opened is None:
            return
        now = self._clock.monotonic()
        hung = now - self._looked_at > self._session_timeout_ms / 3000
        self._looked_at = now
        try:
            self._beat_if_due(now)
            if self._is_changed():
                with self._tree.transaction(write=False):
                    fired = self._notice_changes()
                self._fire(fired)
            for observed in self._observed.values() if hung else ():
                observed.excuse(now)
            self._end_dead_sessions(now)
        except (StoreUnavailable, OSError) as error:
            if str(error) != self._trouble:
                logger.error("metadata in %s cannot be read or written (%s); trying again", self._path, error)
            self._trouble = str(error)
        else:
            if self._trouble:
                logger.info("metadata in %s can be read and written again", self._path)
            self._trouble = ""

    def _beat_if_due(self, now: float) -> None:
        """Send a heartbeat if a third of the session timeout has passed since the last one. Raises OSError."""
        if self._lock is not None and (now - self._beaten_at) * 3000 > self._session_timeout_ms:
            self._lock.beat()
            self._beaten_at = now

    def begin_session(self) -> int:
        """Begin a session after ending those of dead owners, whose nodes may block the registration of this process.

        Raises StoreUnavailable.
        """
        tree = self._tree
        with tree.transaction(write=False):
            self._discover_sessions()
        self._end_dead_sessions(self._clock.monotonic())
        self._release_lock()
        with tree.transaction():
            tree.next_number("zxid")
            session_id = tree.next_number("session")
            # Locked before the row is visible to other processes, which would otherwise take the session for one of a
            # dead owner.
            path = self._lock_path(session_id)
            try:
                self._lock = OwnSessionLock(path)
            except OSError as error:
                raise StoreUnavailable(path, f"{error.strerror}; check its directory and the space left") from error
            tree.begin_session(session_id, self._session_timeout_ms, os.getpid())
        self._session_id = session_id
        return session_id

    def other_owners(self) -> list[int]:
        """The processes of all other sessions whose owners live. Raises StoreUnavailable."""
        with self._tree.transaction(write=False):
            self._discover_sessions()
        self._end_dead_sessions(self._clock.monotonic())
        with self._tree.transaction(write=False):
            owners = self._tree.owners()
        return [pid for session_id, pid in owners.items() if session_id != self._session_id]

    def carry_out(self, session_id: int, requests: Sequence[Request]) -> list[Result | StoreError]:
        """One batch in one transaction. Raises SessionExpired, StoreUnavailable."""
        tree = self._tree
        writes = any(not isinstance(request, Get | Exists | Children) for request in requests)
        fired: list[tuple[Watch, WatchedEvent]] = []
        try:
            with tree.transaction(write=writes):
                if self._is_changed():
                    fired += self._notice_changes()
                if session_id != self._session_id or not tree.has_session(session_id):
                    raise SessionExpired("")
                zxid = tree.next_number("zxid", by=len(requests)) if writes else 0
                now_ms = self._clock.now_ms()
                outcomes = []
                for position, request in enumerate(requests):
                    if position % REQUESTS_PER_BEAT == REQUESTS_PER_BEAT - 1:
                        with suppress(OSError):  # `_look_around` reports it
                            self._beat_if_due(self._clock.monotonic())
                    attempt = Attempt(session_id, zxid + position, now_ms, [])
                    outcomes.append(self._carry_out_one(request, attempt))
                    fired += [(watch, event) for event in attempt.events for watch in self._watches.take(event)]
        finally:
            # Also when the transaction failed: a watch that fires without a change only causes another look, a lost one
            # is never noticed.
            self._fire(fired)
        return outcomes

    def _carry_out_one(self, request: Request, attempt: Attempt) -> Result | StoreError:
        try:
            if isinstance(request, Get | Exists | Children):
                return self._read(request)
            return apply(request, self._tree, attempt)
        except StoreError as error:
            return error.with_traceback(None)  # the traceback's frames refer to the returned list: a reference cycle for each refusal

    def _read(self, request: Get | Exists | Children) -> Result:
        node = self._tree.find(request.path)
        if node is None and not isinstance(request, Exists):
            raise NoNode(request.path)
        if isinstance(request, Children):
            assert node is not None
            if request.watch is not None:
                self._watches.add_children(request.path, node, request.watch)
            return self._tree.names(request.path)
        if request.watch is not None:
            self._watches.add_data(request.path, node, request.watch)
        if isinstance(request, Exists):
            return None if node is None else node.stat
        assert node is not None
        return node.data, node.stat

    def _is_changed(self) -> bool:
        """Whether others have committed since `_notice_changes` was last successful."""
        self._has_unseen_changes |= self._tree.changed_by_others()
        return self._has_unseen_changes

    def _notice_changes(self) -> list[tuple[Watch, WatchedEvent]]:
        """Another process committed: find new sessions, check that this session still exists, and return the watches to
        fire."""
        self._discover_sessions()
        is_ended = self._session_id != 0 and not self._tree.has_session(self._session_id)
        fired = [(watch, event) for event in self._watches.changes(self._tree.find) for watch in self._watches.take(event)]
        self._has_unseen_changes = False
        if is_ended:
            logger.warning(
                "session %d in %s was ended by another process: this process sent no heartbeat for too long", self._session_id, self._path
            )
            self._watches.clear()
            self._post(self._on_expired, self._session_id)
            self._session_id = 0
            self._release_lock()
        return fired

    def _discover_sessions(self) -> None:
        """Observe the sessions of others. Called in a transaction. Raises StoreUnavailable."""
        sessions = self._tree.sessions()
        now = self._clock.monotonic()
        for session_id, timeout_ms in sessions.items():
            if session_id not in self._observed and session_id != self._session_id:
                path = self._lock_path(session_id)
                try:
                    self._observed[session_id] = ObservedSession(path, timeout_ms, now)
                except OSError as error:
                    raise StoreUnavailable(path, str(error.strerror)) from error
        for session_id in self._observed.keys() - sessions.keys():
            self._observed.pop(session_id).forget(remove=False)

    def _end_dead_sessions(self, now: float) -> None:
        for session_id in [each for each, observed in self._observed.items() if observed.is_dead(now)]:
            ended = self._end_session(session_id)
            self._observed.pop(session_id).forget(remove=ended)
            if ended:
                logger.info("session %d in %s ended: its process is gone or sent no heartbeat for too long", session_id, self._path)

    def _end_session(self, session_id: int) -> bool:
        """Delete the session and the nodes it owned; False when another process was quicker."""
        tree = self._tree
        with tree.transaction():
            if not tree.has_session(session_id):
                return False
            attempt = Attempt(session_id, tree.next_number("zxid"), self._clock.now_ms(), [])
            delete_ephemerals(tree.remove_session(session_id), tree, attempt)
        self._fire([(watch, event) for event in attempt.events for watch in self._watches.take(event)])
        return True

    def _close(self) -> None:
        if self._opened is None:
            return
        self._watches.clear()
        session_id, self._session_id = self._session_id, 0
        try:
            if session_id:
                self._end_session(session_id)
        except StoreUnavailable as error:
            logger.warning("session %d was not ended: %s; the next process that opens the file does that", session_id, error)
        finally:
            self._release_lock()
            for observed in self._observed.values():
                observed.forget(remove=False)
            self._observed = {}
            self._opened.close()
            self._opened = None

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _fire(self, fired: list[tuple[Watch, WatchedEvent]]) -> None:
        for watch, event in fired:
            self._post(watch, event)

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        # The loop is closed when its program ended without closing the store: no callback is left to run.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
