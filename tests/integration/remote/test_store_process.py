"""A store process may be killed, suspended, replaced or slow at any moment: calls end with an error, the next ones have another process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.broker.remote import store_child
from ottla.broker.remote.store_child import StoreChild
from ottla.broker.remote.store_process import CLOSE_SECONDS, SettingsRefused, StoreProcess
from ottla.broker.remote.store_worker import NICE
from ottla.storage.remote.chunk_file import ChunkFile
from ottla.storage.remote.local_layout import LOG_SUFFIX, ROOT
from ottla.storage.remote.ports import IndexKind, RemoteObjectMissing, RemoteStoreError
from tests.support.moto_server import a_moto_server, s3_keys
from tests.support.remote_reading import a_reading, copy_closed_segments
from tests.support.remote_stores import KEY_RING, an_entry, directory_settings, object_settings, segment_files
from tests.support.store_processes import SECONDS, a_store_process, is_alive, run_on_uvloop
from tests.unit.storage.remote.test_segment_reader import a_local_log, local_bytes, read_segments

ROOT_OF_SOURCES = Path(__file__).parents[3]
RECORDS = bytes(range(256)) * 400
ENTRY = an_entry(0, 99, len(RECORDS))

Story = Callable[[StoreProcess], Awaitable[None]]


def with_store(directory: Path, story: Story) -> None:
    """Runs a story with a store in this directory, which has a copy of ENTRY. No process is left at the end."""
    (directory / "shared").mkdir()

    async def told() -> None:
        store = a_store_process(directory_settings(directory / "shared"))
        try:
            await store.prepare()
            await store.copy(ENTRY, segment_files(directory, RECORDS))
            await asyncio.wait_for(story(store), SECONDS)
        finally:
            began = time.monotonic()
            pid = store.pid
            await store.close()
            assert time.monotonic() - began < CLOSE_SECONDS + 1
            assert pid is None or not is_alive(pid)

    run_on_uvloop(told())


def pid_of(store: StoreProcess) -> int:
    pid = store.pid
    assert pid is not None
    return pid


async def until(condition: Callable[[], object]) -> None:
    """Waits for a condition."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def names_in(store: StoreProcess) -> list[str]:
    return [each.name async for each in store.list("")]


CALLS: dict[str, Callable[[StoreProcess, Path], Awaitable[object]]] = {
    "copy": lambda store, directory: store.copy(an_entry(100, 199, len(RECORDS), uuid=2), segment_files(directory, RECORDS)),
    "fetch": lambda store, directory: store.fetch(ENTRY, 0, 1000),
    "index": lambda store, directory: store.index(ENTRY, IndexKind.OFFSET),
    "index_size": lambda store, directory: store.index_size(ENTRY, IndexKind.OFFSET),
    "save_indexes": lambda store, directory: store.save_indexes(ENTRY, {IndexKind.OFFSET: str(directory / "saved")}),
    "manifest": lambda store, directory: store.manifest(ENTRY),
    "size": lambda store, directory: store.size(ENTRY),
    "delete": lambda store, directory: store.delete(ENTRY),
    "probe": lambda store, directory: store.probe(),
    "now_ms": lambda store, directory: store.now_ms(),
    "owner": lambda store, directory: store.owner("one"),
    "list": lambda store, directory: names_in(store),
    "hold": lambda store, directory: store.hold(ENTRY, 0, 1000),
    "prepare": lambda store, directory: store.prepare(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_whose_process_is_killed_fails_and_the_next_one_has_another(tmp_path: Path, name: str) -> None:
    async def story(store: StoreProcess) -> None:
        pid = pid_of(store)
        os.kill(pid, signal.SIGSTOP)
        call = asyncio.ensure_future(CALLS[name](store, tmp_path))
        await asyncio.sleep(0.1)
        assert not call.done()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RemoteStoreError, match="the store process ended"):
            await call
        await CALLS[name](store, tmp_path)
        assert pid_of(store) != pid
        await until(lambda: not Path(f"/proc/{pid}").exists())

    with_store(tmp_path, story)


@pytest.mark.parametrize("name", ["write", "read"])
def test_a_chunk_is_lost_with_the_process_that_holds_it(tmp_path: Path, name: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(len(RECORDS)))
    check = ChunkFile(None, ENTRY, 1000).check(0, None)

    async def story(store: StoreProcess) -> None:
        chunk = await store.hold(ENTRY, 0, 1000)
        pid = pid_of(store)
        os.kill(pid, signal.SIGSTOP)
        call = asyncio.ensure_future(chunk.write(check, str(file)) if name == "write" else chunk.read())
        await asyncio.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RemoteStoreError, match="the store process ended"):
            await call
        await store.probe()
        with pytest.raises(RemoteStoreError, match="the store process ended"):
            await chunk.read()
        chunk.drop()

    with_store(tmp_path, story)


def test_a_chunk_is_written_by_the_process_that_holds_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(len(RECORDS)))
    check = ChunkFile(None, ENTRY, 1000).check(1, None)

    async def story(store: StoreProcess) -> None:
        chunk = await store.hold(ENTRY, 1000, 2000)
        await chunk.write(check, str(file))
        assert file.read_bytes() == bytes(1000) + RECORDS[1000:2000] + bytes(len(RECORDS) - 2000)
        assert await chunk.read() == RECORDS[1000:2000]
        with pytest.raises(FileNotFoundError):
            await chunk.write(check, str(tmp_path / "gone"))
        chunk.drop()
        with pytest.raises(RemoteStoreError, match="not held"):
            await chunk.read()

    with_store(tmp_path, story)


def test_remote_segments_are_read_by_chunks_that_a_process_writes(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)
    for name in ("shared", "cache"):
        (tmp_path / name).mkdir()

    async def story() -> None:
        store = a_store_process(directory_settings(tmp_path / "shared"))
        try:
            await store.prepare()
            entries = await copy_closed_segments(log, store)
            reading = a_reading(store, tmp_path / "cache", limit=20_000, source=store)
            assert await read_segments(reading, entries, 700) == local_bytes(log, entries)
            assert reading.chunks.size
            await until(lambda: reading.budget.used == 0)
            for entry in entries:
                reading.chunks.remove(entry)
            os.kill(pid_of(store), signal.SIGSTOP)
            done = reading.loads.want(entries[0], 0, 0, "reader")
            await asyncio.sleep(0.1)
            os.kill(pid_of(store), signal.SIGKILL)
            with pytest.raises(RemoteStoreError, match="the store process ended"):
                await done
            assert reading.budget.used == 0
            assert await read_segments(reading, entries, 700) == local_bytes(log, entries)
            await until(lambda: reading.budget.used == 0)
            for entry in entries:
                reading.chunks.remove(entry)
            reading.chunks._off_until = 1 << 60  # the disk refuses everything
            assert await read_segments(reading, entries, 700) == local_bytes(log, entries)
            await reading.reader.close()
        finally:
            await store.close()

    run_on_uvloop(story())


def test_a_process_that_is_suspended_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_child, "PING_SECONDS", 0.2)

    async def story(store: StoreProcess) -> None:
        pid = pid_of(store)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(RemoteStoreError, match="it has not answered"):
            await store.probe()
        await until(lambda: not Path(f"/proc/{pid}").exists())

    with_store(tmp_path, story)


def test_a_process_is_not_killed_while_only_a_call_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_child, "PING_SECONDS", 0.2)

    async def story(store: StoreProcess) -> None:
        pid = pid_of(store)
        (path,) = (tmp_path / "shared" / ROOT).rglob(f"*{LOG_SUFFIX}")
        path.unlink()
        os.mkfifo(path)
        call = asyncio.ensure_future(store.fetch(ENTRY, 0, 1000))
        await asyncio.sleep(2)
        assert not call.done()
        assert await store.index(ENTRY, IndexKind.OFFSET) == b"o" * 8
        assert pid_of(store) == pid
        call.cancel()
        await asyncio.wait((call,))

    with_store(tmp_path, story)


def block(seconds: float) -> None:
    """Suspends the loop and all of its timers."""
    time.sleep(seconds)


def test_a_broker_that_was_suspended_itself_kills_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_child, "PING_SECONDS", 0.2)

    async def story(store: StoreProcess) -> None:
        pid = pid_of(store)
        for _ in range(3):
            block(1.5)
            await asyncio.sleep(0.21)
        await store.probe()
        assert pid_of(store) == pid

    with_store(tmp_path, story)


def test_signals_for_the_broker_do_not_end_its_process(tmp_path: Path) -> None:
    async def story(store: StoreProcess) -> None:
        pid = pid_of(store)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
        await store.probe()
        assert pid_of(store) == pid
        assert os.getpgid(pid) == pid
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICE)

    with_store(tmp_path, story)


def test_a_copy_that_is_cancelled_has_ended_before_its_deletion_begins(tmp_path: Path) -> None:
    other = an_entry(100, 199, len(RECORDS), uuid=2)

    async def story(store: StoreProcess) -> None:
        before = await names_in(store)
        for delay in (0.0, 0.001, 0.002, 0.004):
            copy = asyncio.ensure_future(store.copy(other, segment_files(tmp_path, RECORDS)))
            await asyncio.sleep(delay)
            copy.cancel()
            await asyncio.wait((copy,))
            await store.delete(other)
        await asyncio.sleep(0.2)
        await store.delete(other)  # a piece may have been in progress in a thread
        assert await names_in(store) == before

    with_store(tmp_path, story)


def test_no_process_is_left_of_a_broker_that_is_killed(tmp_path: Path) -> None:
    program = """
        import asyncio, os, signal, sys
        from pathlib import Path
        from tests.support.remote_stores import directory_settings
        from tests.support.store_processes import a_store_process

        async def main():
            store = a_store_process(directory_settings(Path(sys.argv[1])))
            await store.prepare()
            print(store.pid, flush=True)
            os.kill(store.pid, signal.SIGSTOP)  # so that it cannot notice the end of its connection
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT_OF_SOURCES)
    assert done.returncode == -signal.SIGKILL, done.stderr
    deadline = time.monotonic() + 30
    while is_alive(int(done.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


# -- starts that fail ------------------------------------------------------------------------------------------------------


def test_a_process_of_another_version_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = note_pids(monkeypatch)
    other = store_child.hello()[:-2] + b"?\n"
    monkeypatch.setattr(store_child, "hello", lambda: other)

    async def story() -> None:
        store = a_store_process(directory_settings(tmp_path))
        with pytest.raises(RemoteStoreError, match="does not start: it is of another version than this broker"):
            await store.probe()
        assert store.pid is None
        await store.close()

    run_on_uvloop(story())
    assert [is_alive(pid) for pid in pids] == [False]


def note_pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that are started."""
    pids: list[int] = []
    start = StoreChild._start

    def noting(self: StoreChild) -> object:
        try:
            return start(self)
        finally:
            if self.pid is not None:
                pids.append(self.pid)

    monkeypatch.setattr(StoreChild, "_start", noting)
    return pids


def start_instead(monkeypatch: pytest.MonkeyPatch, program: str) -> list[int]:
    """Has this program started instead of store processes. Returns their process ids."""
    monkeypatch.setattr(store_child, "command_of", lambda descriptor: [sys.executable, "-c", program, str(descriptor)])
    return note_pids(monkeypatch)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise SystemExit('no luck')", r"it has closed the connection; exit status 1; no luck"),
        ("import os; os.kill(os.getpid(), 9)", r"it has closed the connection; signal 9"),
        ("import os, sys; os.write(int(sys.argv[1]), b'ottla st'); raise ValueError('x' * 500)", r"exit status 1; ValueError: x+$"),
        ("import os, sys; os.write(int(sys.argv[1]), b'ottla at')", r"another version"),
        ("import os, sys, time; os.close(int(sys.argv[1])); time.sleep(600)", r"it has closed the connection; signal 9"),
    ],
)
def test_a_process_that_ends_before_the_store_is_open_has_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, program: str, reason: str
) -> None:
    pids = start_instead(monkeypatch, program)

    async def story() -> None:
        store = a_store_process(directory_settings(tmp_path))
        calls = await asyncio.gather(*(store.probe() for _ in range(5)), return_exceptions=True)
        for error in calls:
            with pytest.raises(RemoteStoreError, match=f"^the store process does not start: .*{reason}"):
                raise error or AssertionError
        await store.close()

    run_on_uvloop(story())
    assert len(pids) == 1
    assert not caplog.records, "the start of the broker tells"


def test_a_process_that_does_not_get_ready_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_child, "OPEN_SECONDS", 0.5)
    pids = start_instead(monkeypatch, "import time; time.sleep(600)")

    async def story() -> None:
        store = a_store_process(directory_settings(tmp_path))
        with pytest.raises(RemoteStoreError, match="it was not ready within"):
            await store.probe()
        await store.close()

    run_on_uvloop(story())
    assert [Path(f"/proc/{pid}").exists() for pid in pids] == [False]


@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_a_close_ends_a_process_that_is_being_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay: float) -> None:
    pids = start_instead(monkeypatch, "import time; time.sleep(600)")

    async def story() -> None:
        store = a_store_process(directory_settings(tmp_path))
        call = asyncio.ensure_future(store.probe())
        await asyncio.sleep(delay)
        began = time.monotonic()
        await store.close()
        assert time.monotonic() - began < CLOSE_SECONDS
        with pytest.raises(RemoteStoreError, match="the remote store was closed"):
            await call
        with pytest.raises(RemoteStoreError, match="the remote store was closed"):
            await store.probe()
        await store.close()

    run_on_uvloop(story())
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_close_does_not_wait_for_a_process_that_is_suspended(tmp_path: Path) -> None:
    async def story(store: StoreProcess) -> None:
        os.kill(pid_of(store), signal.SIGSTOP)
        began = time.monotonic()
        await store.close()
        assert time.monotonic() - began < CLOSE_SECONDS + 0.5

    with_store(tmp_path, story)


def test_no_more_than_one_process_a_second_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = start_instead(monkeypatch, "raise SystemExit('no luck')")

    async def story() -> None:
        store = a_store_process(directory_settings(tmp_path))
        began = time.monotonic()
        while time.monotonic() - began < 2.5:
            with pytest.raises(RemoteStoreError):
                await store.probe()
        await store.close()

    run_on_uvloop(story())
    assert 1 < len(pids) <= 4


def test_a_start_that_fails_later_has_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def story(store: StoreProcess) -> None:
        start_instead(monkeypatch, "raise SystemExit('no luck')")
        os.kill(pid_of(store), signal.SIGKILL)
        await until(lambda: store.pid is None)
        for _ in range(3):
            with pytest.raises(RemoteStoreError, match="no luck"):
                await store.probe()

    with_store(tmp_path, story)
    lines = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(lines) == 2
    assert lines[0].startswith("the store process ended: it has closed the connection; signal 9;")
    assert lines[1].startswith("the store process does not start: it has closed the connection; exit status 1; no luck;")


def test_a_process_that_cannot_be_created_is_an_error_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_child, "command_of", lambda descriptor: [str(tmp_path / "no-program")])

    async def story() -> None:
        store = a_store_process(directory_settings(tmp_path))
        with pytest.raises(RemoteStoreError, match=r"does not start: .*no-program"):
            await store.probe()
        await store.close()

    run_on_uvloop(story())


def test_settings_that_no_store_can_have_are_refused_as_they_were_without_a_process(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(b"no key")
    ring = KEY_RING | {"encryption.key.pairs.k1.public.key.file": str(tmp_path / "key.pem")}
    keys = s3_keys("http://127.0.0.1:1", **ring)

    async def story() -> None:
        store = a_store_process(object_settings(keys))
        with pytest.raises(SettingsRefused, match=r"^the public encryption key k1 is no RSA key in PEM: "):
            await store.probe()
        assert store.pid is None
        await store.close()

    run_on_uvloop(story())


# -- encryption ------------------------------------------------------------------------------------------------------------


def test_a_copy_that_is_repeated_by_another_process_can_be_decrypted(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        store = a_store_process(object_settings(s3_keys(url, **KEY_RING, **{"chunk.size": "40000"})))
        try:
            for _ in range(2):
                await store.copy(ENTRY, segment_files(tmp_path, RECORDS))
                os.kill(pid_of(store), signal.SIGKILL)
                await until(lambda: store.pid is None)
            assert await store.fetch(ENTRY, 0, len(RECORDS)) == RECORDS
            assert await store.index(ENTRY, IndexKind.PRODUCER_SNAPSHOT) == b"snapshot"
            with pytest.raises(RemoteObjectMissing):
                await store.fetch(an_entry(0, 99, len(RECORDS), uuid=7), 0, 1)
        finally:
            await store.close()

    with a_moto_server("bucket") as url:
        run_on_uvloop(story(url))
