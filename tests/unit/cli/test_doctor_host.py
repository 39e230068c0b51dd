"""Every finding about a host, its configuration and its log directories is provoked once, and a healthy host has none."""

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.broker.metadata_store import METADATA_FILE
from ottla.cli.doctor.configuration_checks import judge_latency
from ottla.cli.doctor.examination import examine_broker, examine_directories
from ottla.cli.doctor.host import Mount, RealHost, Space, mount_of
from ottla.cli.doctor.kinds import Finding
from ottla.cli.main import main
from ottla.config.broker import BrokerConfig
from ottla.config.broker_keys import BROKER_KEYS
from ottla.protocol.records.batch import parse_header
from tests.support.batches import with_bytes
from tests.support.certificates import Identity
from tests.support.examined_host import GIB, ImaginedHost
from tests.support.golden_logs import LOGS

DAY = 86_400.0
NOBODY = 65534


class Broker:
    """A broker's directory with these logs of Apache Kafka, its configuration, and its host."""

    def __init__(self, directory: Path, logs: Collection[str]) -> None:
        self.host = ImaginedHost()
        self.data = directory / "data"
        others = [path.name for path in LOGS.joinpath("clean").iterdir() if path.is_dir() and path.name not in logs]
        shutil.copytree(LOGS / "clean", self.data, ignore=shutil.ignore_patterns("*.json", *others))
        (self.data / METADATA_FILE).touch()
        (self.data / ".kafka_cleanshutdown").touch()
        self.partition = next(path for path in sorted(self.data.iterdir()) if path.is_dir())
        self.properties = {"log.dirs": str(self.data), "listeners": "PLAINTEXT://broker.test:9092"}

    def examine(self) -> list[Finding]:
        return examine_broker(BrokerConfig(self.properties), self.host, random.Random(1))

    def secured(self, days: int) -> None:
        """A listener with TLS, whose certificate ends in so many days."""
        identity = Identity("CN=broker", days=days)
        store = self.data.parent / "key.pem"
        store.write_text(identity.key_pem() + identity.certificate_pem)
        self.properties |= {
            "listeners": "SSL://broker.test:9093",
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(store),
        }


def _second_directory(broker: Broker) -> None:
    other = broker.data.parent / "other"
    shutil.copytree(broker.partition, other / broker.partition.name)
    broker.properties["log.dirs"] += f",{other}"


def _old(path: Path, days: float = 2.0) -> None:
    path.touch()
    os.utime(path, (path.stat().st_mtime - days * DAY,) * 2)


def _flip(broker: Broker) -> None:
    log = next(path for path in sorted(broker.data.glob("*/*.log")) if path.stat().st_size > 200)
    content = bytearray(log.read_bytes())
    content[100] ^= 0xFF
    log.write_bytes(content)


def _malformed(broker: Broker) -> None:
    """The last segment of a log begins with a batch whose checksum is right."""
    log = next(path for path in sorted(broker.data.glob("*/*.log")) if path.stat().st_size > 200)
    content = log.read_bytes()
    end = parse_header(content).size
    log.write_bytes(with_bytes(content[:end], 57, (1000).to_bytes(4, "big")) + content[end:])


def _key_without_effect(broker: Broker) -> None:
    """Any of those that are left."""
    name, value = next((key.name, key.default) for key in BROKER_KEYS.values() if not key.effective and isinstance(key.default, int))
    broker.properties[name] = str(value).lower()


def _unusable_certificate(broker: Broker) -> None:
    broker.secured(90)
    Path(broker.properties["ssl.keystore.location"]).write_text("none")


def _file_in_its_place(broker: Broker) -> None:
    shutil.rmtree(broker.data)
    broker.data.write_text("a file")


PROVOKED: dict[str, Callable[[Broker], object]] = {
    "key-unknown": lambda broker: broker.properties.update({"log.dir.s": "x"}),
    "key-of-no-listener": lambda broker: broker.properties.update({"listener.name.no.max.connections": "3"}),
    "key-without-effect": _key_without_effect,
    "certificate-expires": lambda broker: broker.secured(20),
    "certificate-expired": lambda broker: broker.secured(-1),
    "certificate-unusable": _unusable_certificate,
    "name-not-reversible": lambda broker: broker.host.reverse.clear(),
    "name-unresolved": lambda broker: broker.host.names.clear(),
    "name-loopback": lambda broker: broker.properties.update(
        {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://localhost:9092"}
    ),
    "open-files-limit": lambda broker: setattr(broker.host, "files", 1024),
    "memory-maps-limit": lambda broker: setattr(broker.host, "maps", 1000),
    "mount-atime": lambda broker: setattr(broker.host, "mounted", Mount("/", "ext4", frozenset({"rw"}))),
    "mount-synchronous": lambda broker: setattr(broker.host, "mounted", Mount("/", "ext4", frozenset({"rw", "noatime", "sync"}))),
    "mount-network": lambda broker: setattr(broker.host, "mounted", Mount("/", "nfs4", frozenset({"rw", "relatime"}))),
    "mount-read-only": lambda broker: setattr(broker.host, "mounted", Mount("/", "ext4", frozenset({"ro", "relatime"}))),
    "mount-in-memory": lambda broker: setattr(broker.host, "mounted", Mount("/tmp", "tmpfs", frozenset({"rw"}))),
    "disk-nearly-full": lambda broker: setattr(broker.host, "room", Space(10 * GIB, 100 * GIB, 1000, 2000)),
    "disk-full": lambda broker: setattr(broker.host, "room", Space(50 * GIB, 100 * GIB, 10, 2000)),
    "fsync-slow": lambda broker: setattr(broker.host, "seconds", 0.2),
    "clock-unsynchronised": lambda broker: setattr(broker.host, "synchronised", False),
    "clock-behind": lambda broker: setattr(broker.host, "time", broker.host.time - 3 * 3650 * DAY),
    "stray-replica": lambda broker: (broker.data / f"t-0.{'a' * 32}-stray").mkdir(),
    "leftover-files": lambda broker: _old(broker.partition / "00000000000000000099.log.deleted"),
    "directory-unusable": _file_in_its_place,
    "directory-identity": lambda broker: broker.properties.update({"broker.id": "77"}),
    "directory-foreign-content": lambda broker: (broker.data / "lost+found").mkdir(),
    "partition-twice": _second_directory,
    "metadata-missing": lambda broker: (broker.data / METADATA_FILE).unlink(),
    "segment-damaged": _flip,
    "batch-unreadable": _malformed,
    "zookeeper-unreachable": lambda broker: broker.properties.update(
        {"zookeeper.connect": "127.0.0.1:1", "zookeeper.session.timeout.ms": "6000"}
    ),
}
"""By finding the change of a healthy broker that provokes it."""


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path, ["__consumer_offsets-0", "log-plain-0", "log-segments-0", "log-txn-0"])


def test_a_healthy_broker_has_no_finding_and_nothing_of_it_is_changed(tmp_path: Path) -> None:
    broker = Broker(tmp_path, os.listdir(LOGS / "clean"))
    before = {path: path.stat().st_mtime_ns for path in [broker.data, *broker.data.rglob("*")]}
    assert len(before) > 200
    assert broker.examine() == []
    examine_broker(BrokerConfig(broker.properties), RealHost(), random.Random(1))
    assert {path: path.stat().st_mtime_ns for path in [broker.data, *broker.data.rglob("*")]} == before


def test_a_broker_whose_id_the_cluster_assigns_has_no_other_id_in_its_configuration(broker: Broker) -> None:
    broker.properties["broker.id"] = "-1"
    assert broker.examine() == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROVOKED)
def test_each_fault_of_a_host_is_found(kind: str, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.doctor.configuration_checks._CONNECT_MS", 300)
    PROVOKED[kind](broker)
    found = broker.examine()
    assert kind in {each.kind.id for each in found}, found
    assert all(each.what and each.command for each in found)


@pytest.mark.parametrize(
    ("suffix", "at", "said"), [(".index", 7, "no batch begins there"), (".timeindex", 7, "no record up to there has it")]
)
def test_an_index_that_does_not_fit_its_segment_is_found(suffix: str, at: int, said: str, broker: Broker) -> None:
    index = next(path for path in sorted(broker.data.glob(f"*/*{suffix}")) if path.stat().st_size > 0)
    content = bytearray(index.read_bytes())
    content[at] += 1
    index.write_bytes(content)
    (found,) = broker.examine()
    assert found.kind.id == "segment-damaged"
    assert str(index) in found.what
    assert said in found.what


def test_a_certificate_that_other_brokers_would_not_accept_is_found(broker: Broker) -> None:
    broker.secured(90)
    trust = broker.data.parent / "trust.pem"
    trust.write_text(Identity("CN=other").certificate_pem)
    broker.properties["ssl.truststore.location"] = str(trust)
    (found,) = broker.examine()
    assert found.kind.id == "certificate-unusable"
    assert f"key.pem is not accepted by ssl.truststore.location={trust}: " in found.what


@pytest.mark.parametrize(
    ("properties", "what"),
    [
        ({"zookeeper.connect": "127.0.0.1:1", "ottla.jaas.file": "/dev/null/jaas"}, "ottla.jaas.file"),
        ({"zookeeper.connect": "127.0.0.1:1", "zookeeper.set.acl": "true"}, "zookeeper.set.acl=true"),
        ({"authorizer.class.name": "org.example.Authorizer"}, "authorizer.class.name=org.example.Authorizer"),
    ],
)
def test_settings_with_which_a_broker_does_not_start_are_found(properties: dict[str, str], what: str, broker: Broker) -> None:
    broker.properties |= properties
    found = broker.examine()
    assert [each.kind.id for each in found] == ["configuration-invalid"]
    assert what in found[0].what


def test_a_slow_zookeeper_is_found() -> None:
    assert [each.kind.id for each in judge_latency("zk:2181", 0.5)] == ["zookeeper-slow"]
    assert not list(judge_latency("zk:2181", 0.001))


def test_a_loop_of_links_is_no_directory(broker: Broker) -> None:
    (broker.data / "loop").symlink_to("loop")
    assert broker.examine() == []


def test_a_path_with_blanks_is_one_word_of_the_command(broker: Broker) -> None:
    renamed = broker.data.rename(broker.data.parent / "data of a broker")
    stray = renamed / f"t-0.{'a' * 32}-stray"
    stray.mkdir()
    (found,) = examine_directories([str(renamed)], broker.host, random.Random(1))
    assert found.command == f"rm -r '{stray}', once its records are not needed"


def test_a_log_directory_is_examined_alone(broker: Broker) -> None:
    (broker.data / METADATA_FILE).unlink()
    (broker.data / "lost+found").mkdir()
    found = examine_directories([str(broker.data)], broker.host, random.Random(1))
    assert [each.kind.id for each in found] == ["directory-foreign-content"]


@contextmanager
def closed_to_this_user(*paths: Path) -> Iterator[None]:
    """Takes the rights on paths away; root, who needs none, becomes another user meanwhile."""
    modes = {path: path.stat().st_mode for path in paths}
    is_root = os.geteuid() == 0
    for path in paths:
        path.chmod(0)
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)


def test_a_directory_without_rights_is_one_problem(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    def examined() -> str:
        with pytest.raises(SystemExit) as ended:
            main(["doctor", str(broker.data)], standalone_mode=False)
        return f"{ended.value.code} {capsys.readouterr().out}"

    assert "directory-unusable" not in examined()
    with closed_to_this_user(broker.data):
        found = examine_directories([str(broker.data)], broker.host, random.Random(1))
        output = examined()
    assert [(each.kind.id, each.what) for each in found] == [("directory-unusable", f"{broker.data}: Permission denied")]
    assert output.startswith("2 PROBLEM directory-unusable: ")
    assert "run this as the user of the broker" in output


def test_files_without_rights_are_named_and_not_called_damaged(broker: Broker) -> None:
    with tempfile.TemporaryDirectory() as place:  # the folders above tmp_path are closed to other users
        data = Path(place, "data")
        shutil.copytree(broker.data, data)
        for path in (Path(place), data, *data.rglob("*")):
            path.chmod(0o777)
        first, second, *_ = (path for path in sorted(data.iterdir()) if path.is_dir() and list(path.glob("*.log")))
        closed = [data / "meta.properties", first, next(second.glob("*.index"))]
        with closed_to_this_user(*closed):
            found = examine_directories([str(data)], broker.host, random.Random(1))
    assert [each.kind.id for each in found] == ["directory-unusable"]
    assert all(str(path) in found[0].what for path in closed)


def test_a_crashed_directory_is_not_called_damaged(broker: Broker) -> None:
    (broker.data / ".kafka_cleanshutdown").unlink()
    segment = sorted(broker.partition.glob("*.log"))[-1]
    with segment.open("ab") as log:
        log.write(bytes(17))  # a torn write
    assert broker.examine() == []


def test_facts_that_cannot_be_found_out_are_no_faults(broker: Broker) -> None:
    host = broker.host
    host.files = host.maps = host.mounted = host.room = host.seconds = host.synchronised = None
    assert broker.examine() == []


def test_the_real_host_knows_its_facts(tmp_path: Path) -> None:
    host = RealHost()
    assert (host.open_files(None) or 0) > 0
    assert host.addresses("broker..test") == []
    assert (host.open_files(os.getpid()) or 0) > 0
    assert host.open_files(2**22 + 1) is None
    assert (host.memory_maps() or 0) > 1000
    space = host.space(str(tmp_path))
    assert space is not None
    assert space.total >= space.free > 0
    assert (host.flush_seconds(str(tmp_path)) or 1.0) > 0
    assert list(tmp_path.iterdir()) == []
    assert host.flush_seconds(str(tmp_path / "missing")) is None
    assert host.mount(str(tmp_path)) is not None
    assert "127.0.0.1" in host.addresses("localhost")
    assert host.addresses("no.such.name.invalid") == []


def test_the_mount_of_a_path_is_the_last_of_the_deepest_ones() -> None:
    text = (
        "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        "23 22 8:2 / /data\\040one rw,noatime shared:5 - xfs /dev/sdb rw,attr2\n"
        "24 22 0:5 / /data rw - tmpfs tmpfs rw,size=5\n"
        "25 22 0:6 / /data rw,relatime - ext4 /dev/sdc ro\n"
        "broken line\n"
    )
    assert mount_of("/data one/logs", text) == Mount("/data one", "xfs", frozenset({"rw", "noatime", "attr2"}))
    found = mount_of("/data/logs", text)
    assert found is not None
    assert (found.kind, "ro" in found.options) == ("ext4", True)
    assert (mount_of("/database", text) or Mount("", "", frozenset())).point == "/"


def test_a_configuration_that_cannot_be_used_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=none\n")
    with pytest.raises(SystemExit) as ended:
        main(["doctor", str(tmp_path / "server.properties")], standalone_mode=False)
    assert ended.value.code == 2
    assert "PROBLEM configuration-invalid: Invalid value none for configuration num.partitions" in capsys.readouterr().out
