"""Small files that a thread writes: who asks often keeps nobody waiting, and neither does a disk that hangs."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker.loop.background import LoopBackground
from storage.disk import directory_writes
from storage.disk.deferred_writes import DeferredWrites
from storage.disk.directory_writes import Checkpoint
from tests.support.background import ManualBackground
from tests.support.clocks import ManualClock

LOG_DIR = "/data"
PARTS = 5
TURNS = 60


class Busy:
    """Asks for two checkpoints again with every turn, each of which is gathered in several."""

    def __init__(self) -> None:
        self.background = ManualBackground(ManualClock())
        self.writes = DeferredWrites(self.background, lambda _: None)
        self.written: list[str] = []

    def ask(self) -> None:
        for name in ("recovery points", "high watermarks"):
            self.writes.checkpoint(name, LOG_DIR, lambda name=name: Checkpoint(_parts(), lambda: self.written.append(name)))

    def turn(self) -> None:
        self.ask()
        self.background.turn()
        self.background.run_work()


def _parts() -> Iterator[None]:
    for _ in range(PARTS):
        yield


def test_checkpoints_that_are_asked_for_all_the_time_are_written() -> None:
    busy = Busy()
    for _ in range(TURNS):
        busy.turn()
    assert set(busy.written) == {"recovery points", "high watermarks"}


def test_who_waits_for_what_was_asked_for_is_told_while_others_go_on_asking() -> None:
    busy = Busy()
    told: list[int] = []
    busy.ask()
    busy.writes.when_written(lambda: told.append(len(busy.written)))
    for _ in range(TURNS):
        busy.turn()
    assert told
    assert told[0] >= 2, "both were asked for before"


def test_a_small_file_is_written_while_others_go_on_asking_for_checkpoints() -> None:
    busy = Busy()
    busy.ask()
    busy.writes.write("epochs", LOG_DIR, lambda: lambda: busy.written.append("epochs"))
    for _ in range(TURNS):
        busy.turn()
    assert "epochs" in busy.written


def test_what_is_asked_for_while_a_checkpoint_is_gathered_is_in_the_next() -> None:
    busy = Busy()
    busy.ask()
    busy.background.turn()
    gathered: list[str] = []
    busy.writes.checkpoint("recovery points", LOG_DIR, lambda: Checkpoint(iter(()), lambda: gathered.append("again")))
    while busy.background.turn():
        busy.background.run_work()
    assert gathered == ["again"]


def test_at_the_end_all_that_was_asked_for_is_written() -> None:
    busy = Busy()
    busy.turn()
    busy.written.clear()
    busy.ask()
    busy.writes.write("epochs", LOG_DIR, lambda: lambda: busy.written.append("epochs"))
    busy.writes.run_now()
    assert busy.written[0] == "epochs"
    assert set(busy.written[1:]) == {"recovery points", "high watermarks"}


def test_a_file_that_changes_again_before_its_batch_is_complete_is_written_once_with_what_is_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two threads that replace one file at the same time take its temporary file from each other.
    monkeypatch.setattr(directory_writes, "WRITES_PER_TURN", 1)
    busy = Busy()

    def write(name: str, content: str) -> None:
        busy.writes.write(name, LOG_DIR, lambda: lambda: busy.written.append(content))

    write("a", "a 1")
    write("b", "b 1")
    write("c", "c 1")
    busy.background.turn()
    write("a", "a 2")
    while busy.background.turn():
        busy.background.run_work()
    assert sorted(busy.written) == ["a 2", "b 1", "c 1"]


def test_a_disk_that_hangs_delays_the_files_of_no_other_directory() -> None:
    hangs = threading.Event()
    written: list[str] = []

    def hang() -> None:
        hangs.wait(60)

    async def ask() -> None:
        is_written, loop = asyncio.Event(), asyncio.get_running_loop()

        def write_recovery_points() -> None:
            written.append("recovery points")
            loop.call_soon_threadsafe(is_written.set)

        with ThreadPoolExecutor(8) as threads:
            background = LoopBackground(threads)
            writes = DeferredWrites(background, lambda _: None)
            try:
                writes.write("hung epochs", "/hung", lambda: hang)
                writes.write("epochs", LOG_DIR, lambda: lambda: written.append("epochs"))
                writes.checkpoint("recovery points", LOG_DIR, lambda: Checkpoint(_parts(), write_recovery_points))
                await asyncio.wait_for(is_written.wait(), 20)
            finally:
                hangs.set()
                background.close()

    asyncio.run(ask())
    assert written == ["epochs", "recovery points"]


def test_who_waits_for_all_directories_is_told_when_the_last_one_is_written() -> None:
    background = ManualBackground(ManualClock())
    writes = DeferredWrites(background, lambda _: None)
    written: list[str] = []
    told: list[list[str]] = []
    for log_dir in ("/a", "/b"):
        writes.write(f"epochs of {log_dir}", log_dir, lambda log_dir=log_dir: lambda: written.append(log_dir))
    writes.when_written(lambda: told.append(list(written)))
    while background.turn():
        pass
    assert not told
    background.advance()
    assert told == [["/a", "/b"]]
