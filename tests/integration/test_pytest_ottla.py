"""The plugin for pytest as a project uses it: fixtures, faults, workers of xdist, and the end of everything."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.apache_kafka import ensure_jars, java_available
from tests.support.apache_kafka.java import QUICK_OPTIONS
from tests.support.broker_process import eventually

pytest_plugins = ("pytester",)
PLUGIN = Path(__file__).parents[2] / "pytest-ottla"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project that has the plugin, and packages with the names of Ottla's own."""
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeini("[pytest]\naddopts = -p pytest_ottla.plugin\nottla_config =\n    num.partitions=2\n")
    for name in ("config", "storage"):
        pytester.mkpydir(name)
    return pytester


def brokers_under(directory: Path) -> list[str]:
    """The command lines of brokers with data below a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "--ephemeral" in line and str(directory) in line:
            found.append(line)
    return found


def run(project: pytest.Pytester, source: str, *arguments: str, **outcomes: int) -> pytest.RunResult:
    project.makepyfile(source)
    done = project.runpytest_subprocess("-q", f"--basetemp={project.path}/tmp", *arguments)
    done.assert_outcomes(**outcomes)
    assert brokers_under(project.path) == []
    assert not list((project.path / "tmp").rglob("*.log"))
    return done


def test_a_test_has_topics_and_groups_of_its_own_and_helpers(project: pytest.Pytester) -> None:
    run(
        project,
        """
        import pytest
        from pytest_ottla import OttlaError

        def test_first(kafka, ottla):
            topic = kafka.topic("orders", partitions=2)
            assert kafka.produce(topic, [b"one", (b"key", b"two"), (b"key", None)], partition=1) == [0, 1, 2]
            assert [tuple(each) for each in kafka.consume(topic, 3)] == [(1, 0, None, b"one"), (1, 1, b"key", b"two"), (1, 2, b"key", None)]
            with pytest.raises(OttlaError, match="has 3 records, not 4, after 0.1 s"):
                kafka.consume(topic, 4, timeout=0.1)
            records = [[None, None, partition] for partition in (1, 0, 1, 0)]
            assert ottla.ask("produce", topic=topic, records=records) == [3, 0, 4, 1]  # in the order of the records
            assert ottla.lag(kafka.group(), topic) == 7
            with pytest.raises(OttlaError, match="is 7 records behind in"):
                kafka.wait_for_lag_zero(kafka.group(), topic, timeout=0.1)

        def test_second(kafka):
            topic = kafka.topic("orders")
            kafka.produce(topic, [b"other"])
            assert [each.value for each in kafka.consume(topic, 1)] == [b"other"]

        def test_settings_come_from_the_project(ottla):
            ottla.produce("made", [b"x"])
            assert {each.partition for each in ottla.consume("made", 1)} <= {0, 1}
        """,
        passed=3,
    )


def test_faults_hit_the_next_requests_and_end_with_the_test(project: pytest.Pytester) -> None:
    run(
        project,
        """
        import time
        import confluent_kafka
        import pytest
        from pytest_ottla import OttlaError

        def errors_of_a_produce(kafka, topic):
            errors = []
            producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "retries": 0, "enable.idempotence": False})
            producer.produce(topic, b"x", on_delivery=lambda error, message: errors.append(error))
            producer.flush(20)
            return errors

        def test_an_error_of_kafka(kafka, ottla):
            topic = kafka.topic()
            ottla.fail_next("PRODUCE", "TOPIC_AUTHORIZATION_FAILED")
            (error,) = errors_of_a_produce(kafka, topic)
            assert error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
            assert errors_of_a_produce(kafka, topic) == [None]

        def test_retried_errors_are_not_seen(kafka, ottla):
            topic = kafka.topic()
            ottla.fail_next("METADATA", "LEADER_NOT_AVAILABLE", times=2)
            ottla.fail_next("PRODUCE", "NOT_LEADER_OR_FOLLOWER", times=2)
            ottla.fail_next("FETCH", None)
            assert kafka.produce(topic, [b"x"]) == [0]
            assert kafka.consume(topic, 1)[0].value == b"x"

        def test_delay_and_slow_disk(kafka, ottla):
            topic = kafka.topic()
            for fault in (lambda: ottla.delay(100), lambda: ottla.slow_disk(100)):
                fault()
                begin = time.monotonic()
                kafka.produce(topic, [b"x"])
                assert time.monotonic() - begin >= 0.1
                ottla.heal()
            ottla.delay(100)

        def test_a_shifted_clock(kafka, ottla):
            topic = kafka.topic(config={"message.timestamp.type": "LogAppendTime"})
            ottla.shift_clock(3600)
            kafka.produce(topic, [b"x"])
            consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": kafka.group()})
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            message = consumer.poll(20)
            consumer.close()
            assert 3500 < message.timestamp()[1] / 1000 - time.time() < 3700

        def test_a_broker_that_was_killed_says_so(kafka, ottla):
            topic = kafka.topic()
            kafka.produce(topic, [b"x"])
            before = ottla.bootstrap_servers
            ottla.kill()
            with pytest.raises(OttlaError, match="was killed; call restart"):
                kafka.produce(topic, [b"y"])
            ottla.restart()
            assert ottla.bootstrap_servers == before
            assert kafka.consume(topic, 1)[0].value == b"x"
            ottla.kill()

        def test_the_next_test_has_a_broker_again(kafka, ottla):
            ottla.pause()
            with pytest.raises(OttlaError, match="is paused; call resume"):
                kafka.topic()
            ottla.resume()
            kafka.topic()
            ottla.pause()

        def test_a_full_disk_ends_a_broker_with_one_directory(kafka, ottla):
            topic = kafka.topic()
            ottla.full_disk()
            with pytest.raises(OttlaError):
                kafka.produce(topic, [b"x"])
            with pytest.raises(OttlaError, match="has ended by itself, see .*broker.log; call restart"):
                while True:
                    ottla.lag("g", topic)

        def test_nothing_is_left_of_it(kafka):
            assert kafka.produce(kafka.topic(), [b"x"]) == [0]

        def test_what_does_not_exist_is_named(ottla):
            with pytest.raises(OttlaError, match="there is no api 'NO_SUCH_API'"):
                ottla.fail_next("NO_SUCH_API", None)
            with pytest.raises(OttlaError, match="there is no error 'NO_SUCH_ERROR'"):
                ottla.fail_next("FETCH", "NO_SUCH_ERROR")
        """,
        passed=9,
    )


@pytest.mark.cluster
def test_a_cluster_survives_the_death_of_a_broker_and_a_cut(project: pytest.Pytester) -> None:
    run(
        project,
        """
        import time

        def isr_of(cluster, topic):
            import confluent_kafka.admin
            client = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            return set(client.list_topics(topic, timeout=20).topics[topic].partitions[0].isrs)

        def until(condition):
            deadline = time.monotonic() + 60
            while not condition():
                assert time.monotonic() < deadline
                time.sleep(0.05)

        def test_it(ottla_cluster):
            cluster = ottla_cluster(3, replica_lag_time_max_ms=1000)
            cluster.any.create_topic("t")
            assert cluster.any.produce("t", [b"one"]) == [0]
            until(lambda: isr_of(cluster, "t") == {0, 1, 2})
            cluster[0].kill()
            until(lambda: isr_of(cluster, "t") == {1, 2})
            assert cluster.any.produce("t", [b"two"]) == [1]
            cluster.heal()
            until(lambda: isr_of(cluster, "t") == {0, 1, 2})
            cluster.cut(0, 1)
            cluster.cut(0, 2)
            assert cluster[1].produce("t", [b"three"]) == [2]
            until(lambda: isr_of(cluster[1], "t") == {1, 2})
            cluster.heal()
            until(lambda: isr_of(cluster, "t") == {0, 1, 2})
            assert [each.value for each in cluster.any.consume("t", 3)] == [b"one", b"two", b"three"]
        """,
        passed=1,
    )


@pytest.mark.soak
def test_each_worker_of_xdist_has_a_broker_and_none_is_left(project: pytest.Pytester) -> None:
    run(
        project,
        """
        import os
        import pytest

        @pytest.mark.parametrize("number", range(40))
        def test_it(kafka, number, request):
            assert kafka.produce(kafka.topic(), [b"x"]) == [0]
            (request.config.rootpath / f"address-of-{os.getpid()}").write_text(kafka.bootstrap_servers)
        """,
        "-n2",
        passed=40,
    )
    addresses = [path.read_text() for path in project.path.glob("address-of-*")]
    assert len(set(addresses)) == 2
    for host, _, port in (address.partition(":") for address in addresses):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), 5)


def test_a_program_with_asyncio_goes_on_while_a_broker_starts_and_stops(project: pytest.Pytester) -> None:
    run(
        project,
        """
        import asyncio
        import shutil
        import pytest
        from pytest_ottla import async_broker

        def test_a_start(tmp_path):
            async def main():
                turns = 0

                async def count():
                    nonlocal turns
                    while True:
                        turns += 1
                        await asyncio.sleep(0.001)

                counting = asyncio.create_task(count())
                async with async_broker(tmp_path, num_partitions=3) as broker:
                    assert turns > 10
                    assert await asyncio.to_thread(broker.produce, "t", [b"x"]) == [0]
                counting.cancel()
                assert not broker.is_running

            asyncio.run(main())
            shutil.rmtree(tmp_path)

        def test_a_start_that_is_cancelled(tmp_path):
            async def enter():
                async with async_broker(tmp_path):
                    raise AssertionError("it was cancelled before")

            async def main():
                entering = asyncio.create_task(enter())
                await asyncio.sleep(0)
                entering.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await entering

            asyncio.run(main())
            shutil.rmtree(tmp_path)
        """,
        passed=2,
    )


def test_all_workers_of_xdist_can_share_a_broker_and_none_is_left(project: pytest.Pytester) -> None:
    with (project.path / "tox.ini").open("a") as ini:
        ini.write("\nottla_shared = true\n")
    run(
        project,
        """
        import os
        import pytest
        from pytest_ottla import OttlaError

        @pytest.mark.parametrize("number", range(8))
        def test_it(kafka, number, request):
            topic = kafka.topic()
            assert kafka.produce(topic, [b"x"]) == [0]
            assert kafka.consume(topic, 1)[0].value == b"x"
            with pytest.raises(OttlaError, match="is shared by all workers, so it takes no faults: use ottla_cluster"):
                kafka.broker.kill()
            (request.config.rootpath / f"address-of-{os.getpid()}").write_text(kafka.bootstrap_servers)
        """,
        "-n2",
        passed=8,
    )
    addresses = [path.read_text() for path in project.path.glob("address-of-*")]
    assert len(addresses) == 2
    assert len(set(addresses)) == 1
    assert not (project.path / "tmp" / "ottla-shared").exists()


def test_workers_that_want_different_settings_cannot_share(project: pytest.Pytester) -> None:
    run(
        project,
        """
        from concurrent.futures import ThreadPoolExecutor
        import pytest
        from pytest_ottla import OttlaError
        from pytest_ottla.shared import Lender, SharedBroker

        def test_it(tmp_path):
            lender = Lender()
            try:
                with SharedBroker(lender.terms, tmp_path / "broker", {"num.partitions": "2"}) as one:
                    with SharedBroker(lender.terms, tmp_path, {"num.partitions": "2"}) as other, ThreadPoolExecutor(2) as threads:
                        one.produce("t", [b"x"])
                        waiting = threads.submit(one.consume, "t", 2, 20.0)
                        assert other.known_brokers() == [0]
                        other.produce("t", [b"y"])
                        assert {each.value for each in waiting.result()} == {b"x", b"y"}
                    with pytest.raises(OttlaError, match="all workers share one broker, so ottla_config must be the same"):
                        SharedBroker(lender.terms, tmp_path, {})
            finally:
                lender.close()
        """,
        passed=1,
    )


def test_a_broker_ends_with_a_test_run_that_is_killed(project: pytest.Pytester) -> None:
    file = project.makepyfile("""
        import time

        def test_it(ottla, request):
            (request.config.rootpath / "ready").write_text(str(ottla.pid))
            time.sleep(60)
    """)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", f"--basetemp={project.path}/tmp", str(file)], cwd=project.path, stdout=subprocess.DEVNULL
    )
    ready = project.path / "ready"
    eventually(lambda: ready.exists() and ready.read_text())
    pid = int(ready.read_text())
    process.send_signal(signal.SIGKILL)
    process.wait()
    eventually(lambda: not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text())


def test_a_setting_that_cannot_be_used_is_one_line(project: pytest.Pytester) -> None:
    done = run(
        project,
        """
        import pytest
        from pytest_ottla import Broker, OttlaError

        def test_it(tmp_path):
            with pytest.raises(OttlaError, match=r"the broker did not start: Invalid value -5 for .*num.partitions: .*; its log is"):
                Broker(tmp_path, num_partitions=-5)
            (tmp_path / "broker.log").unlink()
        """,
        passed=1,
    )
    assert "Traceback" not in done.stdout.str()


def test_without_the_command_the_tests_say_what_is_missing(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    run(
        project,
        """
        import sys
        import pytest
        from pytest_ottla import Broker, OttlaError

        def test_it(tmp_path, monkeypatch):
            monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
            with pytest.raises(OttlaError, match="there is no command ottla: install ottla into the environment of the tests"):
                Broker(tmp_path)
            (tmp_path / "broker.log").unlink(missing_ok=True)
        """,
        passed=1,
    )


@pytest.mark.parametrize(
    "library", ["confluent_kafka", *(pytest.param(each, marks=pytest.mark.soak) for each in ("aiokafka", "kafka_python"))]
)
def test_the_example_passes(project: pytest.Pytester, library: str) -> None:
    source = (PLUGIN / "examples" / f"test_{library}.py").read_text()
    run(project, source, passed=2)


@pytest.mark.soak
@pytest.mark.java
def test_the_example_in_java_passes(tmp_path: Path) -> None:
    if not java_available():
        pytest.skip(str(java_available()))
    ottla = Path(sys.executable).with_name("ottla")
    command = ["java", *QUICK_OPTIONS, "-cp", f"{ensure_jars()}/*", str(PLUGIN / "examples" / "EphemeralBroker.java"), str(ottla)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "key=value\n"
