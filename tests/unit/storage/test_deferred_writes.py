"""Small files that a thread writes: who asks often keeps nobody waiting, and neither does a disk that hangs."""

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from ottla.broker.loop.background import LoopBackground
from ottla.storage.disk.deferred_writes import DeferredWrites
from ottla.storage.disk.directory_writes import Checkpoint
from ottla.storage.errors import LogDirFailure
from tests.support.background import ManualBackground
from tests.support.clocks import ManualClock
from tests.support.pauses import turns_by_hand

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
    with turns_by_hand():
        for _ in range(TURNS):
            busy.turn()
    assert set(busy.written) == {"recovery points", "high watermarks"}


def test_who_waits_for_what_was_asked_for_is_told_while_others_go_on_asking() -> None:
    busy = Busy()
    told: list[int] = []
    busy.ask()
    busy.writes.when_written(LOG_DIR, lambda _: told.append(len(busy.written)))
    with turns_by_hand():
        for _ in range(TURNS):
            busy.turn()
    assert told
    assert told[0] >= 2, "both were asked for before"


def test_a_small_file_is_written_while_others_go_on_asking_for_checkpoints() -> None:
    busy = Busy()
    busy.ask()
    busy.writes.write("epochs", LOG_DIR, lambda: lambda: busy.written.append("epochs"))
    with turns_by_hand():
        for _ in range(TURNS):
            busy.turn()
    assert "epochs" in busy.written


def test_what_is_asked_for_while_a_checkpoint_is_gathered_is_in_the_next() -> None:
    busy = Busy()
    gathered: list[str] = []
    with turns_by_hand():
        busy.ask()
        busy.background.turn()
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


def test_a_file_that_changes_again_before_its_batch_is_complete_is_written_once_with_what_is_newest() -> None:
    # Two threads that replace one file at the same time take its temporary file from each other.
    busy = Busy()

    def write(name: str, content: str) -> None:
        busy.writes.write(name, LOG_DIR, lambda: lambda: busy.written.append(content))

    write("a", "a 1")
    write("b", "b 1")
    write("c", "c 1")
    with turns_by_hand():
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


class Forgetful:
    """Two requests, for a small file and for a checkpoint, whose first attempt fails at one step for lack of memory."""

    def __init__(self, fails_as: str, error: Exception | None = None) -> None:
        self.background = ManualBackground(ManualClock())
        self.failures: list[LogDirFailure] = []
        self.writes = DeferredWrites(self.background, self.failures.append)
        self.written: list[str] = []
        self._fails_as = fails_as
        self._error = error or MemoryError()
        self.writes.write("epochs", LOG_DIR, self._prepare_file)
        self.writes.checkpoint("recovery points", LOG_DIR, self._prepare_checkpoint)

    def _step(self, name: str) -> None:
        if self._fails_as == name:
            self._fails_as = ""
            raise self._error

    def _prepare_file(self) -> Callable[[], None]:
        self._step("the file is prepared")
        return partial(self._write, "epochs", "the file is written")

    def _prepare_checkpoint(self) -> Checkpoint:
        self._step("the checkpoint is prepared")
        return Checkpoint(self._gather(), partial(self._write, "recovery points", "the checkpoint is written"))

    def _gather(self) -> Iterator[None]:
        yield
        self._step("the checkpoint is gathered")
        yield

    def _write(self, what: str, step: str) -> None:
        self._step(step)
        self.written.append(what)


STEPS = (
    "the file is prepared",
    "the checkpoint is prepared",
    "the checkpoint is gathered",
    "the file is written",
    "the checkpoint is written",
)


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EMFILE, "no descriptor is free")])
@pytest.mark.parametrize("step", STEPS)
def test_what_fails_by_a_shortage_is_tried_again_and_what_relies_on_it_waits(step: str, error: Exception) -> None:
    forgetful = Forgetful(fails_as=step, error=error)
    told: list[list[str]] = []
    forgetful.writes.when_written(LOG_DIR, lambda _: told.append(list(forgetful.written)))
    forgetful.background.advance()
    assert "recovery points" not in forgetful.written
    assert not told
    forgetful.background.advance(1000)
    assert forgetful.written == ["epochs", "recovery points"]
    assert told == [["epochs", "recovery points"]]
    assert not forgetful.failures
    forgetful.writes.write("more epochs", LOG_DIR, lambda: lambda: forgetful.written.append("more epochs"))
    forgetful.background.advance()
    assert forgetful.written[-1] == "more epochs"


def test_a_stop_before_the_next_attempt_writes_what_has_failed() -> None:
    forgetful = Forgetful(fails_as="the file is written")
    forgetful.background.advance()
    forgetful.writes.run_now()
    assert forgetful.written == ["epochs", "recovery points"]
    assert not forgetful.failures


@pytest.mark.parametrize("step", STEPS)
def test_what_cannot_be_written_at_the_end_either_is_a_failure_of_its_directory(step: str) -> None:
    forgetful = Forgetful(fails_as=step)
    forgetful.writes.run_now()
    assert "recovery points" not in forgetful.written
    assert [each.log_dir for each in forgetful.failures] == [LOG_DIR]
