"""Upgrades a host from the package of an earlier commit to that of the checkout, without a manual step: nothing that was set is lost."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.packages.debian_package import Package, Service, build_package_of, install, networked, service, unit_of
from tests.packages.networks import Place
from tests.packages.roots import AS_ROOT, Root
from tests.packages.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
EARLIER = "2668c0c1"
"""A commit before the new console, the unit of a host with many cores, and most conversions of what is stored."""
OVERRIDDEN = "/etc/systemd/system/ottla.service.d/limits.conf"
UNITS = "/lib/systemd/system"
ETC = "/etc/ottla"
INSTANCE = """broker.id=4
listeners=PLAINTEXT://127.0.0.1:9092
log.dirs=/var/lib/ottla-east/data
"""
PROFILE = """[here]
bootstrap-server = "127.0.0.1:9092"
timeout = 20
"""
OVERRIDE = """[Service]
LimitNOFILE=4096
"""


@pytest.fixture
def host(work: Path, base: Path, scratch: Path) -> Root:
    """A Debian with the package of the earlier commit."""
    known = subprocess.run(["git", "cat-file", "-e", f"{EARLIER}^{{commit}}"], cwd=ROOT, stderr=subprocess.DEVNULL, check=False)
    if known.returncode != 0:
        pytest.skip(f"the history has no commit {EARLIER}")
    earlier = build_package_of(EARLIER, work, base)
    root = Root(scratch / "host", [base])
    root.run("apt-get", "update", how=networked())
    install(root, earlier.file)
    return root


@pytest.fixture
def place() -> Iterator[Place]:
    """A network of its own, in which the ports are free."""
    with Place("host") as made:
        yield made


def administer(started: Service, *arguments: str, written: str = "") -> str:
    return started.running.run("ottla", *arguments, "--profile", "here", how=AS_ROOT, input=written)


def configure(root: Root) -> None:
    """What an administrator adds: settings, a second broker, a profile, an override of the unit."""
    root.run("sh", "-c", f"printf 'num.partitions=5\\nottla.metadata.file=/var/lib/ottla/metadata.db\\n' >> {ETC}/server.properties")
    root.write(f"{ETC}/east.properties", INSTANCE)
    root.run("chown", "root:ottla", f"{ETC}/east.properties")
    root.write("/.config/ottla/profiles.toml", PROFILE)
    root.write(OVERRIDDEN, OVERRIDE)
    root.run("install", "--directory", "--owner=ottla", "--group=ottla", "--mode=0750", "/var/lib/ottla-east")  # as systemd does


def serve(root: Root, place: Place, unit: str, do: Callable[[Service], None]) -> None:
    """Start a unit, do something with it, and stop it."""
    with service(root, place, unit_of(root, f"{UNITS}/{unit}", "east")) as started:
        started.wait_for("READY=1")
        do(started)
        assert started.running.stop() == 0, started.running.said()


def use(started: Service) -> None:
    """Write into everything that a broker stores."""
    administer(started, "topics", "create", "orders", "--partitions", "1")
    administer(started, "configs", "alter", "topic", "orders", "--set", "retention.ms=123456789")
    administer(started, "configs", "alter", "broker", "default", "--set", "log.cleaner.threads=2")
    administer(started, "quotas", "set", "producer_byte_rate=1000000", "--user", "alice")
    administer(started, "users", "add", "alice", "--mechanism", "scram-sha-512", written="of-alice-secret\n")
    administer(started, "produce", "orders", written="one\ntwo\nthree\n")
    assert administer(started, "consume", "-q", "-G", "readers", "-c", "2", "orders").splitlines() == ["one", "two"]


def look(started: Service) -> None:
    """All that is still there, and is written on."""
    assert administer(started, "consume", "-e", "orders").splitlines() == ["one", "two", "three"]
    assert administer(started, "consume", "-q", "-G", "readers", "-c", "1", "orders").splitlines() == ["three"]
    assert "123456789" in administer(started, "configs", "describe", "topic", "orders")
    assert "log.cleaner.threads" in administer(started, "configs", "describe", "broker", "default")
    assert "producer_byte_rate" in administer(started, "quotas", "list", "--user", "alice")
    assert "SCRAM-SHA-512" in administer(started, "users", "list").upper()
    administer(started, "topics", "create", "later")
    (later,) = json.loads(administer(started, "topics", "describe", "later", "--json"))
    assert len(later["partitions"]) == 5
    administer(started, "produce", "orders", written="four\n")
    assert administer(started, "consume", "-o", "3", "-e", "orders").splitlines() == ["four"]
    assert "Traceback" not in started.running.said()


def use_instance(started: Service) -> None:
    started.produce("regional", "of the east")


def look_at_instance(started: Service) -> None:
    assert started.consume("regional") == ["of the east"]


def test_an_upgrade_from_an_earlier_commit_keeps_all_that_was_set_and_stored(host: Root, place: Place, package: Package) -> None:
    configure(host)
    serve(host, place, "ottla.service", use)
    serve(host, place, "ottla@.service", use_instance)
    kept = (f"{ETC}/server.properties", f"{ETC}/east.properties", OVERRIDDEN, "/.config/ottla/profiles.toml")
    before = [host.run("cat", path) for path in kept]

    install(host, package.file)

    assert [host.run("cat", path) for path in kept] == before
    for unit in ("ottla.service", "ottla@.service", "ottla-cluster.service"):
        assert host.run("cat", f"{UNITS}/{unit}") == (ROOT / "deploy" / "systemd" / unit).read_text()
    new = f"{ETC}/cluster/brokers.properties"
    assert host.run("stat", "--format=%U:%G %a", new, f"{ETC}/server.properties").splitlines() == ["root:ottla 640"] * 2
    assert host.run("dpkg", "--verify", "ottla").splitlines() == [f"??5?????? c {ETC}/server.properties"]
    serve(host, place, "ottla.service", look)
    serve(host, place, "ottla@.service", look_at_instance)
