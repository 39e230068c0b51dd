"""meta.properties, the lock and the clean-shutdown marker: whose log directory is it, and how was it left."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.disk.meta_properties import MetaProperties, encode_meta_properties, read_meta_properties
from ottla.storage.disk.start_errors import (
    DuplicateDirectoryId,
    DuplicateLogDirectory,
    InconsistentBrokerId,
    InconsistentClusterId,
    InvalidMetaProperties,
    LogDirectoryLocked,
    NoUsableLogDirectory,
)
from ottla.storage.manager.log_directories import LogDirectories
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.golden_logs import LOGS

CLUSTER = "L6meopUYTaSTXyS2IxEz4A"
DIRECTORY_ID = "x9aQ7fTfQeC_yW1-2bJt5g"
NOV_20_MS = 1_795_217_258_000
GOLDEN = sorted(LOGS.glob("*/meta.properties"))


def with_meta(text: str) -> MemoryFileSystem:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("/data")
    filesystem.open("/data/meta.properties", create=True).write(text.encode())
    return filesystem


def opened(filesystem: MemoryFileSystem | FaultyFileSystem, *paths: str) -> LogDirectories:
    directories = LogDirectories(paths or ("/data",), filesystem)
    directories.open()
    return directories


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.parts[-2])
def test_a_recorded_file_is_read(path: Path) -> None:
    assert read_meta_properties(str(path.parent), RealFileSystem()) == MetaProperties(0, CLUSTER)


def test_a_file_is_written_as_java_does() -> None:
    written = encode_meta_properties(MetaProperties(0, CLUSTER), NOV_20_MS)
    assert written == (LOGS / "clean" / "meta.properties").read_bytes()


def test_an_odd_cluster_id_survives() -> None:
    odd = MetaProperties(3, " a=b:c#d!e\\f ", DIRECTORY_ID)
    assert read_meta_properties("/data", with_meta(encode_meta_properties(odd, 0).decode())) == odd


def test_new_directories_are_created_locked_and_marked() -> None:
    filesystem = MemoryFileSystem()
    directories = opened(filesystem, "/new/a", "/new/b")
    assert directories.stored_broker_id is None
    directories.identify(CLUSTER, 4, NOV_20_MS)
    for path in ("/new/a", "/new/b"):
        assert read_meta_properties(path, filesystem) == MetaProperties(4, CLUSTER)
        assert filesystem.exists(f"{path}/.lock")


def test_one_directory_without_the_file_gets_it() -> None:
    filesystem = with_meta("broker.id=4\nversion=0\ncluster.id=c\n")
    directories = opened(filesystem, "/fresh", "/data")
    assert directories.stored_broker_id == 4
    directories.identify("c", 4, NOV_20_MS)
    assert read_meta_properties("/fresh", filesystem) == MetaProperties(4, "c")
    assert filesystem.read_file("/data/meta.properties") == b"broker.id=4\nversion=0\ncluster.id=c\n"


def test_a_directory_id_is_kept() -> None:
    filesystem = with_meta(f"version=0\ncluster.id=c\ndirectory.id={DIRECTORY_ID}\n")
    opened(filesystem).identify("c", 4, NOV_20_MS)
    assert read_meta_properties("/data", filesystem) == MetaProperties(4, "c", DIRECTORY_ID)


def test_two_directories_with_one_id_are_refused() -> None:
    filesystem = with_meta(f"version=0\ncluster.id=c\ndirectory.id={DIRECTORY_ID}\n")
    filesystem.make_directory("/copy")
    filesystem.open("/copy/meta.properties", create=True).write(filesystem.read_file("/data/meta.properties"))
    directories = opened(filesystem, "/data", "/copy")
    with pytest.raises(DuplicateDirectoryId, match=rf"^directory\.id {DIRECTORY_ID} is in /data and in /copy\."):
        directories.identify("c", 4, NOV_20_MS)
    assert read_meta_properties("/data", filesystem) == MetaProperties(None, "c", DIRECTORY_ID)


@pytest.mark.parametrize("broker_id", ["+4", "04"])
def test_a_broker_id_may_be_written_in_every_way_that_java_reads(broker_id: str) -> None:
    assert opened(with_meta(f"broker.id={broker_id}\nversion=+0\ncluster.id=c\n")).stored_broker_id == 4


def test_a_directory_of_another_cluster_is_refused() -> None:
    directories = opened(with_meta("broker.id=4\nversion=0\ncluster.id=theirs\n"))
    with pytest.raises(InconsistentClusterId, match=r"^/data/meta\.properties: cluster\.id is theirs, but the cluster's is ours"):
        directories.identify("ours", 4, NOV_20_MS)


def test_a_directory_of_another_broker_is_refused_before_any_other_is_marked() -> None:
    filesystem = with_meta("broker.id=4\nversion=0\ncluster.id=c\n")
    directories = opened(filesystem, "/fresh", "/data")
    with pytest.raises(
        InconsistentBrokerId, match=r"^/data/meta\.properties: broker\.id is 4, but this broker's is 5\..* set broker\.id=4"
    ):
        directories.identify("c", 5, NOV_20_MS)
    assert not filesystem.exists("/fresh/meta.properties")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=1\nnode.id=4\ncluster.id=c\n", "version is '1'"),
        ("version=0\nbroker.id=four\n", "broker.id is 'four', not a broker id"),
        ("version=0\nbroker.id=4 \ncluster.id=c\n", "broker.id is '4 ', not a broker id"),
        ("version=0 \nbroker.id=4\ncluster.id=c\n", "version is '0 '; a broker"),
        ("version=0\nbroker.id=-1\ncluster.id=c\n", "broker.id is '-1', not a broker id"),
        ("version=0\nbroker.id=4294967300\n", "broker.id is '4294967300', not a broker id"),
        ("cluster.id=c\ndirectory.id=abc\n", "directory.id is not a valid directory id: 'abc'"),
        ("cluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n", "directory.id is AAAAAAAAAAAAAAAAAAAAAQ, a reserved id"),
        ("", "it has neither a broker id nor a cluster id"),
        ("#\n#Sun Nov 22 10:00:00 UTC 2026\nversion=0\nclus", "it has neither a broker id nor a cluster id"),
        ("".join(map(chr, range(256))), "it has neither a broker id nor a cluster id"),
        ("\0\0\0\0", "it has neither a broker id nor a cluster id"),
        ("version=\0\0\0\0", "version"),
        ("cluster.id=\\u12", "Malformed"),
    ],
)
def test_garbage_is_refused_with_the_path(text: str, reason: str) -> None:
    with pytest.raises(InvalidMetaProperties) as caught:
        opened(with_meta(text))
    assert str(caught.value).startswith("/data/meta.properties: ")
    assert reason in str(caught.value)


_HOLD = """
import sys
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.manager.log_directories import LogDirectories
held = LogDirectories([sys.argv[1]], RealFileSystem())
held.open()
print("locked", flush=True)
sys.stdin.read()
"""


def test_two_brokers_on_one_directory_are_told_which(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(LogDirectoryLocked, match=rf"^{tmp_path}: its \.lock is held"):
            LogDirectories([str(tmp_path)], RealFileSystem()).open()
        other.stdin.close()
        other.wait()
    again = LogDirectories([str(tmp_path)], RealFileSystem())
    again.open()
    again.unlock()


def test_one_broker_cannot_open_a_directory_twice() -> None:
    filesystem = MemoryFileSystem()
    opened(filesystem)
    with pytest.raises(LogDirectoryLocked):
        opened(filesystem)


def test_a_directory_that_stands_twice_in_the_configuration_is_refused() -> None:
    with pytest.raises(DuplicateLogDirectory, match=r"^/data is twice"):
        LogDirectories(["/data", "/other", "/data/"], MemoryFileSystem())


def test_a_directory_that_the_disk_refuses_is_offline_and_the_others_serve(caplog: pytest.LogCaptureFixture) -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    filesystem.fails_if = lambda name, path: path.startswith("/bad")
    directories = opened(filesystem, "/bad", "/good")
    assert directories.offline == ["/bad"]
    assert [each.path for each in directories.live] == ["/good"]
    assert "log directory /bad is offline" in caplog.text


def test_a_directory_that_cannot_be_marked_is_offline() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    directories = opened(filesystem, "/bad", "/good")
    filesystem.fails_if = lambda name, path: path.startswith("/bad/meta")
    directories.identify(CLUSTER, 0, NOV_20_MS)
    assert directories.offline == ["/bad"]


def test_a_file_in_the_place_of_the_directory_is_refused() -> None:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("/disk")
    filesystem.open("/disk/data", create=True)
    with pytest.raises(NoUsableLogDirectory):
        opened(filesystem, "/disk/data")


def test_without_any_directory_left_the_locks_are_given_back() -> None:
    inner = MemoryFileSystem()
    filesystem = FaultyFileSystem(inner)
    filesystem.fails_if = lambda name, path: name == "make_directory"
    with pytest.raises(NoUsableLogDirectory, match=r"can be used: /a \(/a: Input/output error\), /b \(/b: Input/output error\)"):
        opened(filesystem, "/a", "/b")
    opened(inner, "/a", "/b")


def test_the_clean_shutdown_marker_is_kafkas_and_counts_once() -> None:
    filesystem = MemoryFileSystem()
    directories = opened(filesystem)
    directories.write_clean_shutdown(directories["/data"], -1)
    assert filesystem.read_file("/data/.kafka_cleanshutdown") == (LOGS / "clean" / ".kafka_cleanshutdown").read_bytes()
    assert directories.take_clean_shutdown(directories["/data"])
    assert not directories.take_clean_shutdown(directories["/data"])
