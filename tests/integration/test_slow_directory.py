"""A log directory on storage that hangs delays the producers that wait for its disk, and nobody else."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ottla.broker.environment import Environment
from ottla.ephemeral.disk import DiskFaults, FaultyFileSystem
from ottla.protocol.errors import ErrorCode
from ottla.storage.disk.filesystem import RealFileSystem
from tests.integration.test_read_only_disk import PARTITIONS, records_of, write
from tests.support.admin_requests import a_topic, create
from tests.support.broker_process import eventually
from tests.support.in_process_broker import a_broker_in_process
from tests.support.wire_client import a_wire_client

SECONDS = 60.0


class Hanging(DiskFaults):
    """Threads wait below a directory. The event loop does not: it must not do there what waits for a disk."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = str(directory)
        self._goes_on = threading.Event()
        self._goes_on.set()
        self.waiting = 0

    def hang(self) -> None:
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()

    def before_write(self, path: str) -> None:
        """See DiskFaults."""
        if path.startswith(self._directory) and not self._goes_on.is_set() and not is_on_a_loop():
            self.waiting += 1
            assert self._goes_on.wait(SECONDS)


def is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def test_a_directory_that_hangs_delays_only_who_waits_for_it(tmp_path: Path) -> None:
    good, slow = tmp_path / "good", tmp_path / "slow"
    log_dirs = f"{good},{slow}"
    faults = Hanging(slow)
    environment = Environment()
    environment.file_system = FaultyFileSystem(RealFileSystem(), faults)
    with (
        a_broker_in_process(tmp_path, environment, log_dirs=log_dirs) as broker,
        a_wire_client(broker.port) as client,
        a_wire_client(broker.port) as waiting,
        ThreadPoolExecutor(1) as threads,
    ):
        create(client, a_topic("t", PARTITIONS, configs={"flush.messages": "1"}))
        delayed = sorted(int(path.name.rpartition("-")[2]) for path in slow.glob("t-?"))
        prompt = sorted(set(range(PARTITIONS)) - set(delayed))
        assert len(delayed) == 2
        assert [write(client, partition) for partition in range(PARTITIONS)] == [ErrorCode.NONE] * PARTITIONS
        faults.hang()
        try:
            answer: Future[ErrorCode] = threads.submit(write, waiting, delayed[0])
            eventually(lambda: faults.waiting, what="a flush that hangs")
            for _ in range(20):
                assert [write(client, partition) for partition in prompt] == [ErrorCode.NONE] * 2
            assert [records_of(client, partition) for partition in prompt] == [21] * 2
            assert records_of(client, delayed[1]) == 1
            assert not answer.done()
        finally:
            faults.go_on()
        assert answer.result(SECONDS) == ErrorCode.NONE
        assert write(client, delayed[0]) == ErrorCode.NONE
        assert records_of(client, delayed[0]) == 3
        assert broker.run(lambda: list(broker.services.data.log_manager.offline_log_dirs)) == []
    with a_broker_in_process(tmp_path, log_dirs=log_dirs) as broker, a_wire_client(broker.port) as client:
        eventually(lambda: [records_of(client, partition) for partition in (*delayed, *prompt)] == [3, 1, 21, 21])
