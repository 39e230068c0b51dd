"""Carries out the steps of the Dockerfile in chroots, and tries the broker that they lead to.

No container engine takes part: namespaces, overlays and a root by debootstrap stand in for it (`tests/packages/dockerfile.py`).
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages import secured
from tests.packages.containers import container, is_healthy, stop, volume_of, wait_until_healthy
from tests.packages.dockerfile import Image
from tests.packages.host import IS_COMPILED
from tests.packages.networks import Place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
ADVERTISED = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092"}


@pytest.fixture
def place() -> Iterator[Place]:
    """The network and the host name of a container."""
    with Place("broker") as made:
        yield made


def test_a_container_runs_as_a_user_and_is_configured_by_its_variables(image: Image, place: Place, scratch: Path) -> None:
    with container(image, scratch / "broker", place, {**ADVERTISED, "KAFKA_NUM_PARTITIONS": "3"}) as broker:
        wait_until_healthy(broker, image.settings.health)
        assert broker.user_ids() == {"1000"}
        assert broker.run("id", "--user", "--name") == "ottla\n"
        broker.run("ottla", "produce", "orders", "--create-topic", input="a record\n")
        assert broker.run("ottla", "consume", "-e", "orders") == "a record\n"
        (topic,) = broker.json("ottla", "topics", "describe", "orders", "--json")
        assert len(topic["partitions"]) == 3
        (found,) = broker.json("ottla", "brokers", "list", "--json")["brokers"]
        assert (found["host"], found["port"]) == ("localhost", 9092)
        assert "Traceback" not in broker.said()


@pytest.mark.skipif(not IS_COMPILED, reason="OTTLA_PURE_PYTHON is set")
def test_the_image_has_the_compiled_broker_and_no_compiler(image: Image, place: Place, scratch: Path) -> None:
    with container(image, scratch / "broker", place, ADVERTISED) as broker:
        assert broker.run("ottla", "--version").strip().endswith("hot path compiled")
        assert broker.run("sh", "-c", "for name in gcc cc pip pip3; do command -v $name; done; true") == ""


def test_a_container_serves_users_over_tls_and_the_console_logs_in_as_one(image: Image, place: Place, scratch: Path) -> None:
    volume = volume_of(image, scratch / "broker", "/data")
    for name, content in secured.files("/data").items():
        (volume / name).write_bytes(content)
    overrides = [part for key, value in secured.settings("/data").items() for part in ("--set", f"{key}={value}")]
    with container(image, scratch / "broker", place, {}, command=[*image.settings.command, *overrides]) as broker:
        wait_until_healthy(broker, image.settings.health)
        secured.write_as_user(broker, "/data", "orders")
        assert secured.topics_in_console(broker, "/data") == ["orders"]


def test_it_stops_by_its_signal_and_the_next_container_has_its_records(image: Image, place: Place, scratch: Path) -> None:
    with container(image, scratch / "first", place, ADVERTISED) as broker:
        wait_until_healthy(broker, image.settings.health)
        broker.run("ottla", "produce", "orders", "--create-topic", input="a record\n")
        assert stop(broker, image) == 0, broker.said()
    volume = volume_of(image, scratch / "first", "/data")
    assert (volume / "logs" / ".kafka_cleanshutdown").exists()
    assert {path.stat().st_uid for path in volume.rglob("*")} == {1000}
    volume.rename(volume_of(image, scratch / "second", "/data"))
    with container(image, scratch / "second", place, ADVERTISED) as broker:
        wait_until_healthy(broker, image.settings.health)
        assert broker.run("ottla", "consume", "-e", "orders") == "a record\n"


def test_it_writes_into_its_volume_only(image: Image, place: Place, scratch: Path) -> None:
    with container(image, scratch / "broker", place, ADVERTISED) as broker:
        wait_until_healthy(broker, image.settings.health)
        broker.run("ottla", "produce", "orders", "--create-topic", input="a record\n")
        assert stop(broker, image) == 0, broker.said()
        changes = broker.root.changes
    assert [str(path.relative_to(changes)) for path in changes.rglob("*") if not path.is_dir()] == ["etc/hosts"]


def test_the_health_check_fails_while_the_broker_stands_still(image: Image, place: Place, scratch: Path) -> None:
    check = image.settings.health
    assert check is not None
    with container(image, scratch / "broker", place, ADVERTISED) as broker:
        wait_until_healthy(broker, check)
        broker.send(signal.SIGSTOP)
        assert not is_healthy(broker, check)
        broker.send(signal.SIGCONT)
        wait_until_healthy(broker, check)


def test_a_variable_that_cannot_be_used_is_one_line(image: Image, place: Place, scratch: Path) -> None:
    with container(image, scratch / "broker", place, {"KAFKA_NUM_PARTITIONS": "many"}) as broker:
        assert broker.wait() == 1
        assert broker.said() == "ottla: Invalid value many for configuration num.partitions: Not a number of type INT\n"
    assert list(volume_of(image, scratch / "broker", "/data").iterdir()) == []
