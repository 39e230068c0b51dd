"""`ottla.testing`: a broker in the process of an asyncio test, in projects of other people."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import aiokafka
import pytest

import ottla.testing


async def round_trip(broker: ottla.testing.Broker) -> bytes | None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=20) as producer:
        await producer.send_and_wait("orders", b"value", key=b"key")
    consumer = aiokafka.AIOKafkaConsumer(
        "orders", bootstrap_servers=broker.bootstrap_servers, group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with consumer:
        found = await asyncio.wait_for(consumer.getone(), 20)
        await consumer.commit()
    await broker.wait_for_lag_zero("billing", "orders")
    return found.value


async def until_created(broker: ottla.testing.Broker, topic: str) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while True:
        try:
            return await broker.create_topic(topic)
        except ottla.testing.BrokerError:  # its files are being deleted
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)


def test_clients_on_the_loop_of_the_broker() -> None:
    async def main() -> None:
        async with ottla.testing.Broker() as broker:
            await broker.create_topic("orders", partitions=2)
            assert await round_trip(broker) == b"value"
            assert [tuple(each)[2:] for each in await broker.consume("orders", 1)] == [(b"key", b"value")]
            with pytest.raises(ottla.testing.BrokerError, match=r"orders has 1 records, not 2, after 0.1 s"):
                await broker.consume("orders", 2, timeout=0.1)
            await broker.delete("or")
            await until_created(broker, "orders")
            with pytest.raises(ottla.testing.BrokerError, match="orders has 0 records"):
                await broker.consume("orders", 1, timeout=0.1)

    asyncio.run(main())


def test_faults() -> None:
    async def main() -> None:
        async with ottla.testing.Broker(num_partitions=1) as broker:
            await broker.fail_next("PRODUCE", "NOT_LEADER_OR_FOLLOWER", times=2)
            assert await round_trip(broker) == b"value"
            loop = asyncio.get_running_loop()
            begin = loop.time()
            await broker.delay(100)
            assert await broker.produce("orders", [b"late"], partition=0) == [1]
            assert loop.time() - begin >= 0.1
            await broker.heal()
            await broker.shift_clock(3600)
            with pytest.raises(ottla.testing.BrokerError, match="there is no api 'NO_SUCH_API'"):
                await broker.fail_next("NO_SUCH_API", None)

    asyncio.run(main())


def test_a_full_disk_and_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with ottla.testing.Broker(tmp_path, num_partitions=1) as broker:
            before = broker.bootstrap_servers
            assert await broker.produce("orders", [b"one"]) == [0]
            await broker.full_disk()
            with pytest.raises(ottla.testing.BrokerError, match=f"broker {before} has ended by itself; call restart"):
                await broker.produce("orders", [b"two"])
            with pytest.raises(ottla.testing.BrokerError, match=f"broker {before} has ended by itself; call restart"):
                await broker.heal()
            await broker.restart()
            assert broker.bootstrap_servers == before
            assert await broker.produce("orders", [b"two"]) == [1]
        assert (tmp_path / "data" / "orders-0").is_dir()
        with pytest.raises(ottla.testing.BrokerError, match="only inside"):
            await broker.heal()

    asyncio.run(main())


def test_many_starts_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    open_files: list[int] = []
    threads = set(threading.enumerate())

    def count_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def directories() -> list[Path]:
        return list(tmp_path.glob("ottla-ephemeral-*"))

    async def until_closed(count: int) -> None:
        """The loop closes a socket in a turn of its own; a leak ends in the test's timeout."""
        while True:
            if count_files() <= count:
                return
            await asyncio.sleep(0.01)

    async def main() -> None:
        thresholds, handlers = gc.get_threshold(), signal.getsignal(signal.SIGTERM)
        for _ in range(8):
            async with ottla.testing.Broker() as broker:
                await broker.produce("orders", [b"x"])
                assert len(directories()) == 1
            if open_files:
                await until_closed(open_files[0])
            open_files.append(count_files())
        assert (gc.get_threshold(), signal.getsignal(signal.SIGTERM)) == (thresholds, handlers)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert set(threading.enumerate()) <= threads
    assert len(set(open_files)) == 1
    assert not directories()


def test_a_setting_that_cannot_be_used() -> None:
    async def main() -> None:
        with pytest.raises(ottla.testing.BrokerError, match=r"the broker did not start: Invalid value -5 for .*num.partitions"):
            async with ottla.testing.Broker(num_partitions=-5):
                raise AssertionError("it has started")

    asyncio.run(main())


SCRIPT = """
import asyncio, sys
import config
import ottla.testing

async def main():
    async with ottla.testing.Broker() as broker:
        await broker.create_topic("orders")
        print(await broker.produce("orders", [b"x"]))

asyncio.run(main())
print(config.__file__, sys.modules["config"] is config)
"""


def test_a_project_with_a_package_of_a_floors_name_keeps_it_beside_the_broker(tmp_path: Path) -> None:
    own = tmp_path / "config" / "__init__.py"
    own.parent.mkdir()
    own.touch()
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"[0]\n{own} True\n"
