"""Reads and writes the znode tree in a SQLite file. Blocking; called by `embedded_worker` on its thread.

Durability: journal mode WAL with synchronous FULL. A committed transaction survives the death of any process and a loss
of power; the next process that opens the file rolls a torn one back. `docs/formats.md` describes the tables.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ottla.controller.errors import StoreUnavailable
from ottla.controller.store.metadata_store import parent_of
from ottla.controller.store.tree import ROOT, Node
from ottla.storage.disk.filesystem import FILE_MODE

SCHEMA_VERSION = 1
BUSY_TIMEOUT_SECONDS = 10.0
BUSY_RETRY_SECONDS = 0.01

_SCHEMA = (
    "CREATE TABLE znode (path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB, version INTEGER NOT NULL, cversion INTEGER NOT NULL,"
    " created INTEGER NOT NULL, children INTEGER NOT NULL, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,"
    " ctime_ms INTEGER NOT NULL, mtime_ms INTEGER NOT NULL, ephemeral_owner INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX znode_parent ON znode (parent)",
    "CREATE INDEX znode_owner ON znode (ephemeral_owner) WHERE ephemeral_owner != 0",
    "CREATE TABLE session (id INTEGER PRIMARY KEY, timeout_ms INTEGER NOT NULL, pid INTEGER NOT NULL)",
    "CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO counter VALUES ('zxid', 0), ('session', 0)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_COLUMNS = "data, version, cversion, created, children, czxid, mzxid, pzxid, ctime_ms, mtime_ms, ephemeral_owner"
_FIND = f"SELECT CAST(data AS BLOB), {_COLUMNS.removeprefix('data, ')} FROM znode WHERE path = ?"  # a manual repair may leave text
_PUT = f"INSERT OR REPLACE INTO znode (path, parent, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class SqliteTree:
    """One connection to the file. Implements `tree.Nodes`."""

    def __init__(self, path: str, *, is_durable: bool = True) -> None:
        """Open the file, and create the tables if it is new. Without `is_durable` a loss of power may destroy the file.

        Raises StoreUnavailable.
        """
        self.path = path
        # Made here, so that others cannot read the credentials in it; SQLite gives its other files the same mode. Opening it here instead
        # would release the locks that other connections of this process have.
        with suppress(OSError):
            os.mknod(path, FILE_MODE)
        try:
            self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, cached_statements=64)
            self._use_write_ahead_log()
            self._db.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'OFF'}")
            if self._user_version() == 0:
                self._create_tables()
        except sqlite3.Error as error:
            raise StoreUnavailable(path, f"{error}; check the file, its directory and the space left") from error
        if self._user_version() != SCHEMA_VERSION:
            raise StoreUnavailable(path, f"its tables have version {self._user_version()}, this release reads {SCHEMA_VERSION}")
        self._data_version = self.data_version()

    def _use_write_ahead_log(self) -> None:
        """Retries, because SQLite has no busy timeout for this pragma: of several processes that create the file, all
        but one are refused."""
        deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(BUSY_RETRY_SECONDS)

    def _user_version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _create_tables(self) -> None:
        with self.transaction():
            if self._user_version() == 0:  # no other process was quicker
                for statement in _SCHEMA:
                    self._db.execute(statement)
                self.put("/", ROOT)

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """Commit everything inside together, or nothing if an exception passes. Raises StoreUnavailable for SQLite's
        errors."""
        try:
            self._db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            try:
                self._db.execute("COMMIT")
            except sqlite3.Error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreUnavailable(self.path, f"{error}; nothing was changed") from error

    def data_version(self) -> int:
        """A number that changes whenever another connection commits."""
        try:
            return int(self._db.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error as error:
            raise StoreUnavailable(self.path, str(error)) from error

    def changed_by_others(self) -> bool:
        """Whether another connection has committed since the last call."""
        version = self.data_version()
        changed = version != self._data_version
        self._data_version = version
        return changed

    def close(self) -> None:
        """Close the connection; the last connection of the file also empties the write-ahead log."""
        self._db.close()

    # Nodes

    def find(self, path: str) -> Node | None:
        """See tree.Nodes."""
        row = self._db.execute(_FIND, (path,)).fetchone()
        return None if row is None else Node(*row)

    def put(self, path: str, node: Node) -> None:
        """See tree.Nodes."""
        row = (node.data, node.version, node.cversion, node.created, node.children, node.czxid, node.mzxid, node.pzxid)
        parent = "" if path == "/" else parent_of(path)
        self._db.execute(_PUT, (path, parent, *row, node.ctime_ms, node.mtime_ms, node.ephemeral_owner))

    def remove(self, path: str) -> None:
        """See tree.Nodes."""
        self._db.execute("DELETE FROM znode WHERE path = ?", (path,))

    def names(self, path: str) -> list[str]:
        """The names of the node's children, sorted as Python sorts strings."""
        start = 1 if path == "/" else len(path) + 1
        return sorted(row[0][start:] for row in self._db.execute("SELECT path FROM znode WHERE parent = ?", (path,)))

    # Sessions and counters

    def next_number(self, counter: str, by: int = 1) -> int:
        """Advance a counter by `by` and return the first of the numbers taken: its former value plus one."""
        (value,) = self._db.execute("UPDATE counter SET value = value + ? WHERE name = ? RETURNING value", (by, counter)).fetchone()
        return int(value) - by + 1

    def begin_session(self, session_id: int, timeout_ms: int, pid: int) -> None:
        """Add a session."""
        self._db.execute("INSERT INTO session VALUES (?, ?, ?)", (session_id, timeout_ms, pid))

    def sessions(self) -> dict[int, int]:
        """The timeout of each session by its id."""
        return dict(self._db.execute("SELECT id, timeout_ms FROM session"))

    def owners(self) -> dict[int, int]:
        """The process of each session by its id."""
        return dict(self._db.execute("SELECT id, pid FROM session"))

    def has_session(self, session_id: int) -> bool:
        """Whether the session has not been ended."""
        return self._db.execute("SELECT 1 FROM session WHERE id = ?", (session_id,)).fetchone() is not None

    def remove_session(self, session_id: int) -> list[str]:
        """End a session; returns the paths of the nodes it owned, which the caller deletes in the same transaction."""
        self._db.execute("DELETE FROM session WHERE id = ?", (session_id,))
        return [row[0] for row in self._db.execute("SELECT path FROM znode WHERE ephemeral_owner = ?", (session_id,))]
