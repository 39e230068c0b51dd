"""Runs the services of the compose file, each in a chroot and a network of its own, for clients on the host and in the network.

No container engine takes part. The image of ZooKeeper is replaced by the ZooKeeper of the tests on the Java of this host; its health check
runs in a Debian with `nc`. The limit of open files (`ulimits`) is not set.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packages.containers import container, stop, wait_until_healthy
from tests.packages.debian_package import networked
from tests.packages.dockerfile import HealthCheck, Image
from tests.packages.networks import Network, Place
from tests.packages.roots import How, Root, Running
from tests.support.apache_kafka.java import JavaServer
from tests.support.broker_process import eventually
from tests.support.zookeeper import zookeeper_jars

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.cluster, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]
CARRIED_OUT = {"build", "image", "depends_on", "restart", "stop_grace_period", "environment", "ports", "volumes", "healthcheck", "ulimits"}
"""Keys of services that this test carries out, or names above as left out."""


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    """The services of the file."""
    found = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    for name, service in found["services"].items():
        assert service.keys() <= CARRIED_OUT, name
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= found["volumes"].keys()
    services: dict[str, dict[str, Any]] = found["services"]
    return services


@contextmanager
def zookeeper(service: dict[str, Any], base: Path, folder: Path, place: Place) -> Iterator[None]:
    """A ZooKeeper with the settings of its service, once its health check succeeds."""
    root = Root(folder, [base])
    root.run("apt-get", "update", how=networked())
    root.run("apt-get", "install", "--yes", "--no-install-recommends", "netcat-openbsd", how=networked())
    root.write("/etc/hosts", "127.0.0.1 localhost\n")
    settings = {"dataDir": folder / "data", "clientPort": 2181, "tickTime": 2000, "admin.enableServer": "false"}
    # The image of ZooKeeper makes settings of its variables in this way.
    settings["4lw.commands.whitelist"] = service["environment"]["ZOO_4LW_COMMANDS_WHITELIST"]
    file = folder / "zoo.cfg"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = ["java", "-Xmx128m", "-cp", f"{zookeeper_jars()}/*", "org.apache.zookeeper.server.ZooKeeperServerMain", str(file)]
    server = JavaServer("ZooKeeper", folder / "zookeeper.log")
    kind, shell = service["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    seconds = {name: float(service["healthcheck"][name].removesuffix("s")) for name in ("interval", "timeout")}
    check = HealthCheck(["/bin/sh", "-c", shell], seconds["interval"], seconds["timeout"], 0)
    try:
        server.launch([*place.entering(), *command])
        with Running(root, place, ["sleep", "infinity"], How()) as beside:
            wait_until_healthy(beside, check)
        yield
    finally:
        server.end(signal.SIGKILL)


@contextmanager
def published(services: dict[str, dict[str, Any]], network: Network) -> Iterator[None]:
    """The ports of the services at the place `host`."""
    ports = [
        f"{here}={network.address(name)}:{there}"
        for name, service in services.items()
        for here, there in (port.split(":") for port in service.get("ports", []))
    ]
    command = [*network.places["host"].entering(), sys.executable, "-m", "tests.packages.forward", *ports]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as forwarder:
        assert forwarder.stdout is not None
        assert forwarder.stdin is not None
        assert forwarder.stdout.readline() == "forwards\n"
        yield
        forwarder.stdin.close()


def on_host(network: Network, *arguments: str, input: str = "") -> str:
    """The output of a command of Ottla on the host."""
    command = [*network.places["host"].entering(), sys.executable, "-m", "ottla", *arguments]
    return subprocess.run(command, cwd=ROOT, input=input, stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout


def addresses(answer: str) -> list[tuple[int, str, int]]:
    return [(broker["id"], broker["host"], broker["port"]) for broker in json.loads(answer)["brokers"]]


def test_three_brokers_serve_the_host_and_the_network(services: dict[str, dict[str, Any]], image: Image, base: Path, scratch: Path) -> None:
    names = [name for name, service in services.items() if service["image"] == "ottla"]
    assert names == ["broker-1", "broker-2", "broker-3"]
    assert all(services[name]["depends_on"] == {"zookeeper": {"condition": "service_healthy"}} for name in names)
    with ExitStack() as stack:
        network = stack.enter_context(Network([*services, "host"]))
        stack.enter_context(zookeeper(services["zookeeper"], base, scratch / "zookeeper", network.places["zookeeper"]))

        def started(name: str) -> Running:
            variables = services[name]["environment"]
            return stack.enter_context(container(image, scratch / name, network.places[name], variables, network.hosts()))

        brokers = {name: started(name) for name in names}
        for broker in brokers.values():
            wait_until_healthy(broker, image.settings.health)
        stack.enter_context(published(services, network))

        of_host = [(number, "localhost", 9091 + number) for number in (1, 2, 3)]
        of_network = [(number, f"broker-{number}", 19092) for number in (1, 2, 3)]
        eventually(lambda: addresses(on_host(network, "brokers", "list", "--json", "-b", "localhost:9093")) == of_host)
        assert addresses(brokers["broker-1"].run("ottla", "brokers", "list", "--json", "-b", "broker-3:19092")) == of_network

        on_host(network, "topics", "create", "orders", "-p", "3", "-b", "localhost:9092")
        on_host(network, "produce", "orders", "-b", "localhost:9092,localhost:9093", input="one\ntwo\nthree\n")
        assert sorted(on_host(network, "consume", "-e", "orders", "-b", "localhost:9094").split()) == ["one", "three", "two"]
        read = brokers["broker-2"].run("ottla", "consume", "-e", "orders", "-b", "broker-1:19092")
        assert sorted(read.split()) == ["one", "three", "two"]

        brokers["broker-2"].send(signal.SIGKILL)
        assert brokers["broker-2"].wait() != 0  # so that an engine starts it again
        assert services["broker-2"]["restart"] == "on-failure"
        brokers["broker-2"] = started("broker-2")
        wait_until_healthy(brokers["broker-2"], image.settings.health)
        eventually(in_sync(network), 120, "all replicas are in sync")

        grace = {float(re.fullmatch(r"(\d+)s", services[name]["stop_grace_period"])[1]) for name in names}  # type: ignore[index]  # fails if it is none
        for broker in brokers.values():
            assert stop(broker, image, min(grace)) == 0, broker.said()


def in_sync(network: Network) -> Callable[[], bool]:
    """Whether each partition of the topic has three replicas in sync."""

    def look() -> bool:
        (topic,) = json.loads(on_host(network, "topics", "describe", "orders", "--json", "-b", "localhost:9092"))
        return [sorted(partition["isr"]) for partition in topic["partitions"]] == [[1, 2, 3]] * 3

    return look
