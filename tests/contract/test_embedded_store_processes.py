"""Several processes on one metadata file: what one of them leaves behind when it is killed, and what a stopped one may still do."""

import asyncio
import errno
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.controller.errors import SessionExpired, StoreUnavailable
from ottla.controller.store import session_lock
from ottla.controller.store.embedded_store import EmbeddedStore
from ottla.controller.store.embedded_worker import REQUESTS_PER_BEAT, EmbeddedWorker
from ottla.controller.store.metadata_store import Exists, WatchedEvent
from ottla.controller.store.session_lock import ObservedSession, OwnSessionLock
from ottla.controller.store.sqlite_tree import SqliteTree

OTHER_BROKER = """
import asyncio, sys, time
from ottla.controller.store.embedded_store import EmbeddedStore
from ottla.controller.store.embedded_worker import EmbeddedWorker
class Clock:
    now_ms = staticmethod(lambda: time.time_ns() // 1_000_000)
    monotonic = staticmethod(time.monotonic)
async def main():
    store = EmbeddedStore(sys.argv[1], Clock(), session_timeout_ms=int(sys.argv[2]))
    await store.open_session()
    await store.create("/other", b"alive", ephemeral=True)
    await store.create("/kept", b"acknowledged")
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


class RealClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


def start_other_broker(path: Path, session_timeout_ms: int = 18_000) -> subprocess.Popen[bytes]:
    """A process that holds an ephemeral node /other."""
    process = subprocess.Popen([sys.executable, "-c", OTHER_BROKER, str(path), str(session_timeout_ms)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.005)


@pytest.mark.slow
def test_a_killed_process_loses_its_ephemerals_long_before_its_timeout_and_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    process = start_other_broker(path)

    async def scenario() -> None:
        store = EmbeddedStore(str(path), RealClock())
        await store.open_session()
        try:
            events: list[WatchedEvent] = []
            assert await store.exists("/other", events.append) is not None
            kill(process)
            await until(lambda: bool(events))
            assert await store.exists("/other") is None
            assert (await store.get("/kept"))[0] == b"acknowledged"
        finally:
            await store.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_process_that_starts_after_a_kill_finds_the_way_free(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    kill(start_other_broker(path))

    async def scenario() -> None:
        store = EmbeddedStore(str(path), RealClock())
        await store.open_session()
        assert await store.create("/other", ephemeral=True) == "/other"
        await store.close()

    asyncio.run(scenario())
    assert sorted(os.listdir(tmp_path)) == ["metadata.db"]


@pytest.mark.slow
def test_a_stopped_process_loses_its_session_and_cannot_write_under_it_when_it_wakes(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    process = start_other_broker(path, session_timeout_ms=300)

    async def scenario() -> None:
        store = EmbeddedStore(str(path), RealClock())
        await store.open_session()
        try:
            events: list[WatchedEvent] = []
            await store.exists("/other", events.append)
            os.kill(process.pid, signal.SIGSTOP)
            await until(lambda: bool(events))
        finally:
            await store.close()

    try:
        asyncio.run(scenario())
    finally:
        kill(process)


def test_a_store_whose_session_was_ended_by_another_is_told_and_may_begin_a_new_one(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def scenario() -> None:
        silent = EmbeddedStore(path, RealClock())
        first = await silent.open_session()
        told: list[int] = []
        silent.on_session_expired(lambda: told.append(silent.session_id))
        await silent.create("/silent", ephemeral=True)
        os.unlink(f"{path}.session-{first}")  # as if its owner were gone
        other = EmbeddedStore(path, RealClock())
        await other.open_session()
        assert await other.exists("/silent") is None
        with pytest.raises(SessionExpired):
            await silent.create("/silent", ephemeral=True)
        assert told == [0]
        assert await silent.open_session() > first
        await silent.create("/silent", ephemeral=True)
        await other.close()
        await silent.close()

    asyncio.run(scenario())


def test_a_file_that_is_no_database_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(b"not a database" * 1000)

    async def scenario() -> None:
        store = EmbeddedStore(str(path), RealClock())
        with pytest.raises(StoreUnavailable, match=r"metadata\.db: file is not a database"):
            await store.open_session()
        await store.close()

    asyncio.run(scenario())


def test_a_silent_owner_is_dead_after_its_timeout_and_not_while_its_heart_beats(tmp_path: Path) -> None:
    path = str(tmp_path / "1")
    own = OwnSessionLock(path)
    observed = ObservedSession(path, timeout_ms=1000, now=0.0)
    assert not observed.is_dead(0.9)
    own.beat()
    assert not observed.is_dead(1.8)
    assert not observed.is_dead(2.7)
    assert observed.is_dead(2.9)
    observed.excuse(2.9)
    assert not observed.is_dead(3.8)
    own.release()
    assert observed.is_dead(3.8)
    observed.forget(remove=True)
    assert ObservedSession(path, timeout_ms=1000, now=0.0).is_dead(0.0)


def test_a_session_that_others_end_before_its_owner_knows_of_it_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_session = EmbeddedWorker.begin_session

    def end_what_has_begun(worker: EmbeddedWorker) -> int:
        """As when the process stands still right now: others end the session, and the thread sees that before the loop has its id."""
        monkeypatch.undo()
        session_id = begin_session(worker)
        other = SqliteTree(str(tmp_path / "metadata"))
        with other.transaction():
            other.remove_session(session_id)
        other.close()
        worker._look_around()
        return session_id

    async def scenario() -> None:
        store = EmbeddedStore(str(tmp_path / "metadata"), RealClock())
        told = []
        store.on_session_expired(lambda: told.append(store.session_id))
        await store.open_session()
        with pytest.raises(SessionExpired):
            await store.exists("/")
        assert told == [0]
        await store.open_session()
        assert await store.exists("/")
        await store.close()

    monkeypatch.setattr(EmbeddedWorker, "begin_session", end_what_has_begun)
    asyncio.run(scenario())


def test_a_change_of_another_process_is_noticed_although_the_file_could_not_be_read_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store, other = (EmbeddedStore(str(tmp_path / "metadata"), RealClock()) for _ in range(2))
        await store.open_session()
        await other.open_session()
        events: list[WatchedEvent] = []
        await store.exists("/made", events.append)
        assert store._worker is not None
        tree, sessions = store._worker._opened, SqliteTree.sessions
        refused: list[SqliteTree] = []

        def refused_once(of: SqliteTree) -> dict[int, int]:
            if of is tree and not refused:
                refused.append(of)
                raise sqlite3.OperationalError("disk I/O error")
            return sessions(of)

        monkeypatch.setattr(SqliteTree, "sessions", refused_once)
        await other.create("/made")
        await until(lambda: bool(events))
        assert refused == [tree]
        await other.close()
        await store.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_the_heart_beats_during_a_long_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Running(RealClock):
        """Time runs a thousand times faster."""

        def monotonic(self) -> float:
            return 1000 * super().monotonic()

    beats = 0
    beat = OwnSessionLock.beat

    def counted(lock: OwnSessionLock) -> None:
        nonlocal beats
        beats += 1
        beat(lock)

    async def scenario() -> None:
        store = EmbeddedStore(str(tmp_path / "metadata"), Running(), session_timeout_ms=3)
        await store.open_session()
        before = beats
        await store.pipeline([Exists("/")] * 10 * REQUESTS_PER_BEAT)
        assert beats >= before + 9
        await store.close()

    monkeypatch.setattr(OwnSessionLock, "beat", counted)
    asyncio.run(scenario())


def test_a_session_whose_lock_has_no_room_is_refused_and_may_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: OwnSessionLock) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def scenario() -> None:
        store = EmbeddedStore(str(tmp_path / "metadata"), RealClock())
        with monkeypatch.context() as full:
            full.setattr(OwnSessionLock, "beat", refuse)
            with pytest.raises(StoreUnavailable, match=r"metadata\.session-1: No space left on device"):
                await store.open_session()
        assert await store.open_session() == 1
        await store.close()

    asyncio.run(scenario())
    assert os.listdir(tmp_path) == ["metadata"]


def test_a_disk_that_has_become_read_only_is_told_once_and_does_not_stand_in_the_way_of_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A lock of this session can then be neither written nor removed, and the session not be ended."""
    path = str(tmp_path / "metadata")
    looks = 0

    def refuse(*_: object) -> None:
        nonlocal looks
        looks += 1
        raise OSError(errno.EROFS, "Read-only file system")

    def refuse_to_commit(*_: object) -> bool:
        raise StoreUnavailable(path, "disk I/O error; nothing was changed")

    async def scenario() -> None:
        store = EmbeddedStore(path, RealClock(), session_timeout_ms=30)
        session_id = await store.open_session()
        with monkeypatch.context() as broken:
            broken.setattr(OwnSessionLock, "beat", refuse)
            await until(lambda: looks > 3)
        assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
            f"metadata in {path} cannot be read or written ([Errno {errno.EROFS}] Read-only file system); trying again"
        ]
        await until(lambda: f"metadata in {path} can be read and written again" in caplog.messages)
        monkeypatch.setattr(EmbeddedWorker, "_end_session", refuse_to_commit)
        with monkeypatch.context() as broken:
            broken.setattr(session_lock.os, "unlink", refuse)
            await store.close()
        assert any("was not ended" in message and path in message for message in caplog.messages)
        left = ObservedSession(f"{path}.session-{session_id}", timeout_ms=18_000, now=0.0)
        assert left.is_dead(0.0)
        left.forget(remove=True)

    caplog.set_level(logging.INFO)
    asyncio.run(scenario())
