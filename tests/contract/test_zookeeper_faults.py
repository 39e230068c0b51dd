"""The store on a real ZooKeeper when connections break in the middle of requests, and when its own process stands still."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from ottla.controller.errors import NodeExists
from ottla.controller.store.metadata_store import (
    Children,
    Create,
    Exists,
    Get,
    MetadataStore,
    Multi,
    SetData,
    Stat,
    WatchedEvent,
    data_and_stat,
)
from ottla.controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore
from tests.support.apache_kafka.guard import process_guard
from tests.support.cutting_proxy import CuttingProxy, a_cutting_proxy
from tests.support.zookeeper import MIN_SESSION_TIMEOUT_MS, a_chroot, shared_zookeeper

pytestmark = pytest.mark.java

SESSION_TIMEOUT_MS = 20_000

WRITER = """
import asyncio, sys
from ottla.controller.errors import SessionExpired
from ottla.controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore
async def main():
    store = ZooKeeperStore(ZooKeeperSettings(sys.argv[1], session_timeout_ms=int(sys.argv[2])))
    await store.open_session()
    await store.create("/writer", ephemeral=True)
    try:
        while True:
            print((await store.set("/counter", b"")).version, flush=True)
    except SessionExpired:
        print("expired", flush=True)
    await store.close()
asyncio.run(main())
"""


@contextmanager
def a_bad_connection(seed: int) -> Iterator[tuple[CuttingProxy, str, str]]:
    """A proxy that cuts, and zookeeper.connect of one chroot through it and past it."""
    straight = a_chroot()
    with a_cutting_proxy(seed) as proxy:
        proxy.target = shared_zookeeper().port
        yield proxy, f"127.0.0.1:{proxy.port}/{straight.partition('/')[2]}", straight


def play(scenario: Callable[..., Awaitable[None]], *connects: str) -> None:
    """With a store for each address."""

    async def run() -> None:
        stores = [ZooKeeperStore(ZooKeeperSettings(connect, session_timeout_ms=SESSION_TIMEOUT_MS)) for connect in connects]
        try:
            for store in stores:
                await store.open_session()
            await scenario(*stores)
        finally:
            await asyncio.gather(*(store.close() for store in stores))

    asyncio.run(run())


def start_writer(connect: str) -> subprocess.Popen[str]:
    """A process that writes and says what was acknowledged, until its session has expired."""
    command = [sys.executable, "-c", WRITER, connect, str(MIN_SESSION_TIMEOUT_MS)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    process_guard().watch(writer.pid)
    return writer


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", [1, 2])
def test_requests_stay_in_order_over_connections_that_break(seed: int) -> None:
    with a_bad_connection(seed) as (proxy, through, straight):

        async def scenario(cut: MetadataStore, calm: MetadataStore) -> None:
            session = cut.session_id
            await cut.ensure_path("/a")
            numbers = iter(range(1, 1_000_000))

            async def write_and_read() -> None:
                while proxy.cuts < 12:
                    number = next(numbers)
                    last[0] = number
                    set_first, read, set_last = await cut.pipeline([SetData("/a", b"no"), Get("/a"), SetData("/a", b"%d" % number)])
                    assert isinstance(set_first, Stat)
                    assert isinstance(set_last, Stat)
                    # A read that is asked again may see what was written after it, but never what was written before.
                    value = data_and_stat(read)[0] or b""
                    assert value == b"no" or int(value) >= number

            last = [0]
            # Submitted side by side, and so interleaved by whole pipelines only.
            await asyncio.gather(*(write_and_read() for _ in range(8)))
            proxy.is_calm = True
            assert (await calm.get("/a"))[0] == b"%d" % last[0]
            assert cut.session_id == session, "a cut ends no session"

        play(scenario, through, straight)


@pytest.mark.parametrize("seed", [3, 4])
def test_no_change_is_missed_and_none_is_read_before_it_is_announced(seed: int) -> None:
    with a_bad_connection(seed) as (proxy, through, straight):

        async def scenario(cut: MetadataStore, calm: MetadataStore) -> None:
            await calm.pipeline([Create("/data", b"0"), Create("/children")])
            announced = {"/data": True, "/children": True, "/missing": True}
            seen: dict[str, object] = {}
            fired = asyncio.Event()

            def on_event(event: WatchedEvent) -> None:
                announced[event.path] = True
                fired.set()

            async def look() -> None:
                requests = [Get("/data", on_event), Children("/children", on_event), Exists("/missing", on_event)]
                before = dict(announced)
                announced.update(dict.fromkeys(announced, False))
                outcomes = await cut.pipeline(requests)
                for request, outcome in zip(requests, outcomes, strict=True):
                    # Unless the announcement came together with this very read.
                    if not before[request.path] and not announced[request.path]:
                        assert seen[request.path] == outcome, f"{request.path} changed unannounced"
                    seen[request.path] = outcome

            async def follow() -> None:
                while not done:
                    await look()
                    await fired.wait()
                    fired.clear()

            done: list[bool] = []
            following = asyncio.create_task(follow())
            turn = 0
            while proxy.cuts < 8:
                turn += 1
                missing = Create("/missing") if turn % 2 else SetData("/missing", b"x")
                await calm.pipeline([SetData("/data", b"%d" % turn), Create(f"/children/{turn}"), missing])
                await cut.pipeline([Exists("/data")] * 3)
            proxy.is_calm = True
            # Nobody asks: what was missed is announced by the watches that were set again.
            await until(lambda: seen.get("/data") is not None and data_and_stat(seen["/data"])[0] == b"%d" % turn)  # type: ignore[arg-type]  # outcomes
            await until(lambda: len(seen["/children"]) == turn)  # type: ignore[arg-type]  # the result is a list of names
            done.append(True)
            fired.set()
            await following

        play(scenario, through, straight)


def test_a_create_that_was_cut_off_says_that_the_node_exists_and_the_node_is_ones_own() -> None:
    with a_bad_connection(5) as (proxy, through, straight):

        async def scenario(cut: MetadataStore, calm: MetadataStore) -> None:
            number = 0
            while proxy.cuts < 12:
                number += 1
                path = f"/broker-{number}"
                created, found = await cut.pipeline([Multi((Create(path, ephemeral=True), SetData(path, b"x"))), Get(path)])
                data, stat = data_and_stat(found)
                assert isinstance(created, list | NodeExists)
                assert (data, stat.version, stat.ephemeral_owner) == (b"x", 1, cut.session_id)
            assert len(await calm.children("/")) == number

        play(scenario, through, straight)


def test_a_process_that_stood_still_writes_nothing_under_its_old_session() -> None:
    connect = a_chroot()

    async def scenario(store: MetadataStore) -> None:
        await store.create("/counter", b"")
        writer = start_writer(connect)
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "1\n"
            os.kill(writer.pid, signal.SIGSTOP)
            gone = asyncio.Event()
            if await store.exists("/writer", lambda _: gone.set()) is not None:
                await asyncio.wait_for(gone.wait(), 30)
            assert await store.exists("/writer") is None
            version = (await store.get("/counter"))[1].version
            os.kill(writer.pid, signal.SIGCONT)
            *acknowledged, last = (await asyncio.to_thread(writer.stdout.read)).split()
            assert last == "expired"
            assert all(int(each) <= version for each in acknowledged)
            assert (await store.get("/counter"))[1].version == version
        finally:
            writer.kill()
            writer.communicate()
            process_guard().release(writer.pid)

    play(scenario, connect)
