"""The cleaner in its own process: it cleans, it may be killed, it leaves nothing behind."""

import asyncio
import os
import random
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.loop.background import LoopBackground
from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.cleaner.frames import write_frame
from ottla.storage.cleaner.job import CleaningJob, encode_job
from ottla.storage.cleaner.process import CleanerProcess
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.segment.log_settings import LogSettings
from tests.support.compacted_logs import Writer, values_of
from tests.support.logs import a_config

TOPIC = TopicPartition("t", 0)
OVERRIDES = {"cleanup.policy": "compact", "segment.bytes": "20000"}


class SystemClock:
    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic(self) -> float:
        return time.monotonic()


def _with_manager(tmp_path: Path, test: Callable[[LogManager], Awaitable[None]], **config: str) -> None:
    async def run() -> None:
        broker = BrokerConfig(
            {"log.dirs": str(tmp_path), "log.cleaner.backoff.ms": "50", **{k.replace("_", "."): v for k, v in config.items()}}
        )
        with ThreadPoolExecutor(4) as executor:
            background = LoopBackground(executor)
            manager = LogManager(
                broker, lambda topic: TopicConfig(OVERRIDES, broker), RealFileSystem(), SystemClock(), background, random=random.Random(1)
            )
            manager.open()
            manager.identify("cluster", 0)
            manager.load()
            manager.start()
            try:
                await test(manager)
            finally:
                background.close()
                manager.shutdown()

    asyncio.run(run())


def _fill(manager: LogManager, batches: int = 200) -> Writer:
    writer = Writer(manager.get_or_create(TOPIC, is_new=True))
    for batch in range(batches):
        writer.write([(b"key-%d" % (batch * 7 % 50 + at), b"value-%d" % batch * 10) for at in range(10)])
    return writer


async def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def _children() -> list[int]:
    command = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if "ottla.storage.cleaner.worker" in line]


def test_a_log_is_cleaned_in_another_process_which_ends_with_the_broker(tmp_path: Path) -> None:
    async def test(manager: LogManager) -> None:
        log = _fill(manager).log
        values, size = values_of(log), log.size_bytes
        await _until(lambda: manager.cleaner.checkpoints.get(log) == log.segments.active.base_offset)
        assert values_of(log) == values
        assert log.size_bytes < size / 2
        assert len(_children()) == 1

    _with_manager(tmp_path, test)
    assert not _children()


def test_a_cleaner_that_is_killed_is_replaced(tmp_path: Path) -> None:
    async def test(manager: LogManager) -> None:
        log = _fill(manager).log
        await _until(lambda: bool(_children()))
        os.kill(_children()[0], signal.SIGKILL)
        await _until(lambda: manager.cleaner.checkpoints.get(log) == log.segments.active.base_offset)
        assert manager.cleaner.uncleanable_partitions(str(tmp_path)) == frozenset()

    _with_manager(tmp_path, test, log_cleaner_io_max_bytes_per_second="500000")


def test_a_stop_does_not_wait_for_a_slow_cleaning(tmp_path: Path) -> None:
    async def test(manager: LogManager) -> None:
        _fill(manager)
        await _until(lambda: bool(manager.cleaner._tasks))

    began = time.monotonic()
    _with_manager(tmp_path, test, log_cleaner_io_max_bytes_per_second="100")
    assert time.monotonic() - began < 20
    assert not _children()
    assert not [path for path in (tmp_path / "t-0").iterdir() if path.suffix == ".cleaned"]


def test_the_process_ends_when_the_broker_is_gone() -> None:
    program = """
        import os
        from ottla.storage.cleaner.job import CleaningJob
        from ottla.storage.cleaner.process import CleanerProcess
        process = CleanerProcess()
        job = CleaningJob("t-0", "/nowhere", (), (), 0, 0, (), 0, 0, {}, 0, 1 << 20, 0.9, 4096, 1.0)
        process.start(job)
        print(process._process.pid, flush=True)
        os._exit(0)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=30)
    pid = int(done.stdout)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and "ottla.storage.cleaner.worker" in Path(f"/proc/{pid}/cmdline").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_does_not_begin_the_job_of_a_broker_that_is_gone() -> None:
    job = CleaningJob("t-0", "/nowhere", (), (), 0, 0, (), 0, 0, LogSettings(a_config()).to_numbers(), 0, 1 << 20, 0.9, 4096, 1.0)
    data = encode_job(job)
    for parent, is_done in ((os.getpid(), True), (os.getppid(), False)):
        command = [sys.executable, "-m", "ottla.storage.cleaner.worker", str(parent)]
        done = subprocess.run(command, input=struct.pack(">I", len(data)) + data, capture_output=True, check=True, timeout=30)
        assert (b"done" in done.stdout, done.stderr) == (is_done, b"")


def test_a_process_without_a_broker_to_tell_says_nothing() -> None:
    job = CleaningJob("t-0", "/nowhere", (), (), 0, 0, (), 0, 0, LogSettings(a_config()).to_numbers(), 0, 1 << 20, 0.9, 4096, 1.0)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # which hides it
    with subprocess.Popen(
        [sys.executable, "-m", "ottla.storage.cleaner.worker", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        write_frame(process.stdin, encode_job(job))
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_a_process_that_is_being_made_when_everything_ends_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    is_begun, may_go = threading.Event(), threading.Event()
    make = subprocess.Popen

    def slowly(*arguments: Any, **options: Any) -> Any:
        is_begun.set()
        assert may_go.wait(30)
        return make(*arguments, **options)

    process = CleanerProcess()
    job = CleaningJob("t-0", "/nowhere", (), (), 0, 0, (), 0, 0, {}, 0, 1 << 20, 0.9, 4096, 1.0)
    with ThreadPoolExecutor(2) as executor:
        with monkeypatch.context() as patched:
            patched.setattr("ottla.storage.cleaner.process.subprocess.Popen", slowly)
            starting = executor.submit(process.start, job)
            assert is_begun.wait(30)
            process.kill()
            closing = executor.submit(process.close)
            wait([closing], timeout=0.5)  # it has to wait for the start, so that this ends without it
            may_go.set()
            starting.result()
        closing.result()
    assert not _children()
