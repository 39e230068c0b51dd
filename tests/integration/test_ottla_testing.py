"""`ottla.testing`: a broker in the process of an asyncio test, in projects of other people."""

import pytest

pytest_plugins = ("pytester",)

TEST_OF_A_PROJECT = """
    import asyncio
    import gc
    import os
    import signal
    import threading
    from pathlib import Path
    import aiokafka
    import pytest
    import ottla.testing

    async def round_trip(broker):
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

    async def until_created(broker, topic):
        deadline = asyncio.get_running_loop().time() + 20
        while True:
            try:
                return await broker.create_topic(topic)
            except ottla.testing.BrokerError:  # its files are being deleted
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.02)

    def test_clients_on_the_loop_of_the_broker():
        async def main():
            async with ottla.testing.Broker() as broker:
                await broker.create_topic("orders", partitions=2)
                assert await round_trip(broker) == b"value"
                assert [tuple(each)[2:] for each in await broker.consume("orders", 1)] == [(b"key", b"value")]
                with pytest.raises(ottla.testing.BrokerError, match="orders has 1 records, not 2, after 0.1 s"):
                    await broker.consume("orders", 2, timeout=0.1)
                await broker.delete("or")
                await until_created(broker, "orders")
                with pytest.raises(ottla.testing.BrokerError, match="orders has 0 records"):
                    await broker.consume("orders", 1, timeout=0.1)

        asyncio.run(main())

    def test_faults():
        async def main():
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

    def test_a_full_disk_and_a_restart(tmp_path):
        async def main():
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

    def test_many_starts_leave_nothing_behind():
        open_files, threads = [], set(threading.enumerate())

        def count_files():
            return len(os.listdir("/proc/self/fd"))

        async def main():
            thresholds, handlers = gc.get_threshold(), signal.getsignal(signal.SIGTERM)
            for _ in range(20):
                async with ottla.testing.Broker() as broker:
                    await broker.produce("orders", [b"x"])
                    directories = set(Path(os.environ["TMPDIR"]).glob("ottla-ephemeral-*"))
                    assert len(directories) == 1
                while open_files and count_files() > open_files[0]:
                    await asyncio.sleep(0.01)  # the loop closes a socket in a turn of its own; a leak ends in the test's timeout
                open_files.append(count_files())
            assert (gc.get_threshold(), signal.getsignal(signal.SIGTERM)) == (thresholds, handlers)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(main())
        assert set(threading.enumerate()) <= threads
        assert len(set(open_files)) == 1
        assert not list(Path(os.environ["TMPDIR"]).glob("ottla-ephemeral-*"))

    def test_a_setting_that_cannot_be_used():
        async def main():
            with pytest.raises(ottla.testing.BrokerError, match="the broker did not start: Invalid value -5 for .*num.partitions"):
                async with ottla.testing.Broker(num_partitions=-5):
                    raise AssertionError("it has started")

        asyncio.run(main())
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project without the environment of these tests."""
    for name in ("PYTHONPATH", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\nfilterwarnings = error\n")
    (pytester.path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", f"{pytester.path}/temporary")
    return pytester


def test_a_project_has_a_broker_on_its_own_loop(project: pytest.Pytester) -> None:
    project.mkdir("config").joinpath("settings.yaml").write_text("a: 1\n")  # without modules it is in nobody's way
    project.makepyfile(TEST_OF_A_PROJECT)
    project.runpytest_subprocess("-q").assert_outcomes(passed=5)


@pytest.mark.parametrize("is_imported", [False, True])
def test_a_project_with_a_package_of_a_floors_name_keeps_it_and_is_told_what_to_do(project: pytest.Pytester, is_imported: bool) -> None:
    project.mkpydir("storage")
    project.makepyfile(f"""
        import asyncio
        import sys
        import pytest
        import ottla.testing

        if {is_imported}:
            import storage

        def test_it(request):
            async def main():
                async with ottla.testing.Broker():
                    raise AssertionError("it has started")

            reason = "the package storage in .*/storage/__init__.py has the name .*: start a process with pytest_ottla.async_broker"
            with pytest.raises(ottla.testing.BrokerError, match=reason):
                asyncio.run(main())
            import storage
            assert storage.__file__.startswith(str(request.config.rootpath))
            assert not {{"broker", "config", "controller"}} & set(sys.modules)
        """)
    project.runpytest_subprocess("-q", "-p", "no:xdist").assert_outcomes(passed=1)
