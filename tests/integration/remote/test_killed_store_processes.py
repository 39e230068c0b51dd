"""The store process of a broker is killed again and again: all segments are copied once, and every record is read."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.broker_process import eventually
from tests.support.remote_stores import KEY_RING
from tests.support.s3_servers import KINDS, an_s3_server
from tests.support.store_processes import is_alive
from tests.support.tiered_broker import OBJECTS_OF_A_COPY, TieredBroker, a_tiered_broker, objects_by_copy, records

RECORDS = 300
STEP = 20


def store_processes(broker: TieredBroker) -> list[int]:
    """The store processes of a broker that runs; it has one at most, but for a moment."""
    found = [path.read_text().split() for path in Path(f"/proc/{broker.pid}/task").glob("*/children")]
    return [int(pid) for pids in found for pid in pids if is_alive(int(pid))]


def kill_all(broker: TieredBroker, is_over: threading.Event) -> int:
    """Kills each store process a moment after it was started."""
    rng = random.Random(5)
    killed: set[int] = set()
    while not is_over.is_set():
        for pid in store_processes(broker):
            if pid not in killed:
                time.sleep(rng.uniform(0, 1.5))
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        time.sleep(0.01)
    return len(killed)


@contextmanager
def kills(broker: TieredBroker) -> Iterator[None]:
    is_over = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        killing = threads.submit(kill_all, broker, is_over)
        try:
            yield
        finally:
            is_over.set()
        assert killing.result() > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ring", [{}, KEY_RING], ids=["plain", "encrypted"])
def test_all_is_copied_once_and_read_while_store_processes_are_killed(tmp_path: Path, kind: str, ring: dict[str, str]) -> None:
    with (
        an_s3_server(kind, tmp_path / "s3", "bucket") as s3,
        a_tiered_broker(tmp_path / "broker", s3.url, **ring) as broker,
    ):
        broker.create("t", **{"remote.storage.enable": "true"})
        with kills(broker):
            for first in range(0, RECORDS, STEP):
                broker.fill("t", first, first + STEP)
                time.sleep(0.3)  # so that copies are made beside all kills
        broker.await_(lambda: broker.are_all_copied("t"), "the copies")
        copies = broker.copies("t")
        starts = [copy.start_offset for copy in copies.values()]
        assert len(starts) == len(set(starts)), "a copy was begun twice"
        assert objects_by_copy(s3, "t") == dict.fromkeys(copies, OBJECTS_OF_A_COPY)
        with kills(broker), broker.reading("t", 0) as reading:
            broker.await_(lambda: reading.poll() or len(reading.found) >= RECORDS, "all records")
            assert reading.found == records(0, RECORDS)
        assert broker.consume("t", 0, RECORDS) == records(0, RECORDS)
        (pid,) = eventually(lambda: store_processes(broker), what="a store process")  # type: ignore[misc]  # it returns what was found
        assert broker.stop() == 0
        assert not is_alive(pid)


def test_no_store_process_is_left_of_a_broker_that_is_killed(tmp_path: Path) -> None:
    with an_s3_server("moto", tmp_path / "s3", "bucket") as s3, a_tiered_broker(tmp_path / "broker", s3.url) as broker:
        (pid,) = store_processes(broker)
        broker.kill()
        eventually(lambda: not is_alive(pid), what="the end of the store process")
