"""Follows the Debian package on a host: installed, started, upgraded, removed, purged. lintian judges it.

There is no systemd as process 1 in these roots. The unit's process is started as the unit says, and its notifications are heard.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.packages import confinement, secured
from tests.packages.debian_package import Package, Service, install, later_version, networked, service, unit_of
from tests.packages.host import IS_COMPILED
from tests.packages.networks import Place
from tests.packages.roots import AS_ROOT, How, Root, Running, StepFailed, remove

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]
UNIT = "/lib/systemd/system/ottla.service"
CLUSTER_UNIT = "/lib/systemd/system/ottla-cluster.service"
CONFIGURATION = "/etc/ottla/server.properties"
CLUSTER_CONFIGURATION = "/etc/ottla/cluster/brokers.properties"
KEYS = "/srv/keys"
SYSTEMCTL = """#!/bin/sh
# Notes each call, and whether the files are those before or after the upgrade, which removes a page.
set -- "$@" $(test -e /usr/share/doc/ottla/operations.md && echo before || echo after)
echo "$*" >> /calls
case "$*" in
    *list-units*) printf 'ottla@%s.service loaded active running Ottla broker\\n' east west ;;
    *is-enabled*west*) echo disabled; exit 1 ;;
    *is-enabled*) test -e /enabled && echo enabled || { echo disabled; exit 1; } ;;
    *is-active*) test -e /enabled && echo active || { echo inactive; exit 3; } ;;
esac
"""
WRITABLE_AND_EXECUTABLE = "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)"


@pytest.fixture(scope="module")
def installed(work: Path, base: Path, package: Package) -> Iterator[Root]:
    """A minimal Debian with the package."""
    folder = work / "installed"
    remove(folder)
    root = Root(folder, [base])
    root.run("apt-get", "update", how=networked())
    install(root, package.file)
    yield root
    remove(folder)


@pytest.fixture
def host(installed: Root, scratch: Path) -> Root:
    """The same for one test, which may change it."""
    return Root(scratch / "host", installed.all_layers)


@pytest.fixture
def place() -> Iterator[Place]:
    """A network of its own, in which port 9092 is free."""
    with Place("host") as made:
        yield made


def rights(root: Root, *paths: str) -> list[str]:
    return root.run("stat", "--format=%U:%G %a %n", *paths).splitlines()


def exists(root: Root, path: str) -> bool:
    return root.run("sh", "-c", f"test -e {path} && echo yes || echo no") == "yes\n"


def files_of(root: Root) -> set[str]:
    """What differs from the layers below."""
    return {str(path.relative_to(root.changes)) for path in root.changes.rglob("*") if not path.is_dir()}


def start_and_stop(root: Root, place: Place, do: Callable[[Service], None]) -> None:
    """Start the unit, do something with it, and stop it as systemd does."""
    with service(root, place, unit_of(root, UNIT)) as started:
        started.wait_for("READY=1")
        do(started)
        assert started.running.stop() == 0, started.running.said()
        started.wait_for("STOPPING=1")


def secure(root: Root) -> None:
    """Have the broker of the host serve users over TLS, too."""
    for name, content in secured.files(KEYS).items():
        root.write(f"{KEYS}/{name}", content)
    root.write(f"{KEYS}/added.properties", "".join(f"{key}={value}\n" for key, value in secured.settings(KEYS).items()))
    root.run("sh", "-c", f"cat {KEYS}/added.properties >> {CONFIGURATION}")


def write_a_record(started: Service) -> None:
    started.produce("kept", "a record")
    assert started.consume("kept") == ["a record"]


def test_lintian_has_nothing_to_say(package: Package, scratch: Path) -> None:
    root = Root(scratch / "lint", package.builder.all_layers)
    root.run("apt-get", "update", how=networked())  # the builder may be old
    root.run("apt-get", "install", "--yes", "--no-install-recommends", "lintian", how=networked())
    (changes,) = (package.builder.changes / "build").glob("ottla_*.changes")
    reader = How("nobody:nogroup", "/build", {"HOME": "/nonexistent"})
    root.run("lintian", "--fail-on", "error,warning", "--tag-display-limit", "0", changes.name, how=reader)


def test_the_installation_makes_a_user_and_enables_nothing(installed: Root) -> None:
    account = installed.run("getent", "passwd", "ottla").strip().split(":")
    assert int(account[2]) < 1000
    assert account[5:] == ["/var/lib/ottla", "/usr/sbin/nologin"]
    paths = ("/etc/ottla", CONFIGURATION, CLUSTER_CONFIGURATION, "/etc/default/ottla", "/var/lib/ottla", "/var/log/ottla")
    assert rights(installed, *paths) == [
        "root:ottla 750 /etc/ottla",
        f"root:ottla 640 {CONFIGURATION}",
        f"root:ottla 640 {CLUSTER_CONFIGURATION}",
        "root:root 640 /etc/default/ottla",
        "ottla:ottla 750 /var/lib/ottla",
        "ottla:ottla 750 /var/log/ottla",
    ]
    assert not exists(installed, "/etc/systemd/system/multi-user.target.wants/ottla.service")
    assert installed.run("cat", UNIT) == (ROOT / "deploy" / "systemd" / "ottla.service").read_text()
    assert installed.run("cat", CLUSTER_UNIT) == (ROOT / "deploy" / "systemd" / "ottla-cluster.service").read_text()
    conffiles = installed.run("dpkg-query", "--show", "--showformat", "${Conffiles}", "ottla")
    assert sorted(line.split()[0] for line in conffiles.splitlines() if line.strip()) == [
        "/etc/default/ottla",
        CLUSTER_CONFIGURATION,
        CONFIGURATION,
    ]
    # What the scripts changed after dpkg had unpacked the files.
    assert installed.run("dpkg", "--verify", "ottla") == ""


@pytest.mark.skipif(not IS_COMPILED, reason="OTTLA_PURE_PYTHON is set")
def test_the_command_is_compiled_and_needs_no_other_library_of_python(installed: Root) -> None:
    assert installed.run("ottla", "--version").strip().endswith("hot path compiled")
    code = "import sys, uvloop; print(*(path for path in sys.path if 'dist-packages' in path)); print(uvloop.__file__)"
    outside, library = installed.run("/usr/lib/ottla/bin/python3", "-c", code).splitlines()
    assert outside == ""
    assert library.startswith("/usr/lib/ottla/lib/")
    compiled = installed.run("sh", "-c", "find /usr/lib/ottla/lib -name '*.pyc' | wc -l")
    assert int(compiled) > 200


def test_the_unit_starts_the_sample_configuration_as_its_user(host: Root, place: Place) -> None:
    def look(started: Service) -> None:
        write_a_record(started)
        assert "0" not in started.running.user_ids()
        assert "Traceback" not in started.running.said()

    start_and_stop(host, place, look)
    owners = set(host.run("find", "/var/lib/ottla/data", "-printf", "%U:%G %m\n").splitlines())
    assert not any(owner.startswith("0:") for owner in owners)
    assert not any(mode.endswith(("1", "2", "3", "4", "5", "6", "7")) for mode in owners), "others may read the records"
    assert exists(host, "/var/lib/ottla/data/.kafka_cleanshutdown")


def test_the_unit_serves_users_over_tls_and_the_console_logs_in_as_one(host: Root, place: Place) -> None:
    secure(host)

    def look(started: Service) -> None:
        secured.write_as_user(started.running, KEYS, "orders")
        assert secured.topics_in_console(started.running, KEYS) == ["orders"]
        assert "Traceback" not in started.running.said()

    start_and_stop(host, place, look)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_unit_serves_under_its_restrictions_and_writes_into_its_own_directories(host: Root, place: Place) -> None:
    host.run("apt-get", "install", "--yes", "--no-install-recommends", "python3-seccomp", how=networked())
    host.write(confinement.PROGRAM, confinement.SOURCE)
    secure(host)
    unit = unit_of(host, UNIT)
    before = files_of(host)
    text = (ROOT / "deploy" / "systemd" / "ottla.service").read_text()
    confined = ["/usr/bin/python3", confinement.PROGRAM, confinement.restrictions(text)]
    host.run("sh", "-c", f"echo ottla.metrics.listener=127.0.0.1:9404 >> {CONFIGURATION}")
    host.proc_options = confinement.PROC_OPTIONS
    # The filter is at work: a write to executable memory is refused.
    with Running(host, place, [*confined, "/usr/bin/python3", "-c", WRITABLE_AND_EXECUTABLE], unit.how) as refused:
        assert refused.wait() == 1
        assert "PermissionError" in refused.said() or "Operation not permitted" in refused.said()
    with service(host, place, unit._replace(command=[*confined, *unit.command])) as started:
        started.wait_for("READY=1")
        write_a_record(started)
        secured.write_as_user(started.running, KEYS, "orders")
        read = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9404/metrics').status)"
        assert started.running.run("python3", "-c", read, how=AS_ROOT) == "200\n"
        assert started.running.stop() == 0, started.running.said()
        assert "Operation not permitted" not in started.running.said()
    host.proc_options = "rw"
    own = ("var/lib/ottla/", "var/log/ottla/", "etc/ottla/server.properties", "run/notifications")
    assert [path for path in sorted(files_of(host) - before) if not path.startswith(own)] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_unit_of_a_host_runs_a_broker_per_core_under_its_restrictions(host: Root, place: Place) -> None:
    host.run("apt-get", "install", "--yes", "--no-install-recommends", "python3-seccomp", how=networked())
    host.run("install", "--directory", "--owner=ottla", "--group=ottla", "--mode=0750", "/var/lib/ottla/cluster")  # as systemd does
    host.write(confinement.PROGRAM, confinement.SOURCE)
    unit = unit_of(host, CLUSTER_UNIT)
    text = (ROOT / "deploy" / "systemd" / "ottla-cluster.service").read_text()
    confined = ["/usr/bin/python3", confinement.PROGRAM, confinement.restrictions(text)]
    options = ["--metrics", "127.0.0.1:9404"]
    command = [*confined, *(word for word in unit.command if not word.startswith("$")), *options]
    host.proc_options = confinement.PROC_OPTIONS
    with service(host, place, unit._replace(command=command)) as started:
        started.wait_for("READY=1")
        write_a_record(started)
        read = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9404/health').read().decode(), end='')"
        brokers = started.running.run("python3", "-c", read, how=AS_ROOT).splitlines()
        assert brokers == [f"broker {number}: ready" for number in range(len(os.sched_getaffinity(0)))]
        assert started.running.stop() == 0, started.running.said()
        started.wait_for("STOPPING=1")
        assert "Operation not permitted" not in started.running.said()
    host.proc_options = "rw"


def test_a_unit_with_a_wrong_path_is_one_line(host: Root, place: Place) -> None:
    unit = unit_of(host, UNIT)
    command = [*unit.command[:-1], "/etc/ottla/missing.properties"]
    with service(host, place, unit._replace(command=command)) as started:
        assert started.running.wait() == 1
        assert started.running.said() == "ottla: /etc/ottla/missing.properties cannot be read: No such file or directory\n"
    assert not exists(host, "/var/lib/ottla/data")


def test_an_upgrade_keeps_what_was_configured_and_stored(host: Root, place: Place, package: Package, scratch: Path) -> None:
    start_and_stop(host, place, write_a_record)
    host.run("sh", "-c", f"echo num.partitions=5 >> {CONFIGURATION} && chown ottla:ottla {CONFIGURATION} && chmod 0600 {CONFIGURATION}")
    later = later_version(package, scratch / "later")
    install(host, later, "--option=Dpkg::Options::=--force-confold")

    assert host.run("dpkg-query", "--show", "--showformat", "${Version} ${db:Status-Status}", "ottla") == "0.1.0+later installed"
    assert "num.partitions=5\n" in host.run("cat", CONFIGURATION)
    assert "# of the later version" not in host.run("cat", CONFIGURATION)
    assert host.run("cat", f"{CONFIGURATION}.dpkg-dist").endswith("# of the later version\n")
    assert host.run("cat", "/etc/default/ottla").endswith("# of the later version\n")  # nobody had changed this one
    assert rights(host, CONFIGURATION) == [f"ottla:ottla 600 {CONFIGURATION}"]
    assert host.run("sh", "-c", "ls /usr/share/doc/ottla | grep -c operations || true") == "0\n"

    def look(started: Service) -> None:
        assert started.consume("kept") == ["a record"]
        started.running.run("ottla", "topics", "create", "later", how=AS_ROOT)
        (topic,) = json.loads(started.running.run("ottla", "topics", "describe", "later", "--json", how=AS_ROOT))
        assert len(topic["partitions"]) == 5

    start_and_stop(host, place, look)


def test_an_upgrade_keeps_the_rights_that_an_administrator_chose(host: Root, package: Package, scratch: Path) -> None:
    host.run(
        "sh", "-c", f"chown root:root /etc/ottla {CONFIGURATION} && chmod 0755 /etc/ottla && chmod 0644 {CONFIGURATION} /etc/default/ottla"
    )
    host.run("dpkg-statoverride", "--update", "--add", "root", "root", "0640", CLUSTER_CONFIGURATION)
    host.run("chmod", "0755", "/var/log/ottla")
    paths = ("/etc/ottla", CONFIGURATION, "/etc/default/ottla", CLUSTER_CONFIGURATION, "/var/log/ottla")
    chosen = rights(host, *paths)
    owners = ("root:root 755", "root:root 644", "root:root 644", "root:root 640", "ottla:ottla 755")
    assert chosen == [f"{owner} {path}" for owner, path in zip(owners, paths, strict=True)]

    install(host, later_version(package, scratch / "later"))
    assert host.run("cat", CONFIGURATION).endswith("# of the later version\n")  # a new file takes over the rights of the old one
    assert rights(host, *paths) == chosen


def with_systemctl(host: Root, package: Package) -> None:
    """Install the package on a host with systemd, as far as its scripts can tell. The calls of systemctl are noted."""
    host.run("apt-get", "purge", "--yes", "ottla", how=networked())
    host.write("/usr/bin/systemctl", SYSTEMCTL)
    (host.changes / "usr" / "bin" / "systemctl").chmod(0o755)
    (host.changes / "run" / "systemd" / "system").mkdir(parents=True)  # by which scripts know systemd
    install(host, package.file)


def calls(host: Root, unit: str) -> list[str]:
    """What systemctl was called to start and to stop, of the units whose names match."""
    found = [re.search(rf"\b((?:start|stop|restart) \S*{unit}.*)$", line) for line in host.run("cat", "/calls").splitlines()]
    return [each[1] for each in found if each is not None]


def test_an_installation_starts_nothing_and_an_upgrade_restarts_an_enabled_unit(host: Root, package: Package, scratch: Path) -> None:
    with_systemctl(host, package)
    assert "daemon-reload" in host.run("cat", "/calls")
    assert not re.search(r"\bstart\b", host.run("cat", "/calls"))

    host.run("sh", "-c", "rm /calls && touch /enabled")
    install(host, later_version(package, scratch / "later"))
    assert calls(host, r"ottla\.service") == ["stop ottla.service before", "start ottla.service after"]
    assert calls(host, r"ottla-cluster\.service") == ["stop ottla-cluster.service before", "start ottla-cluster.service after"]


def test_an_upgrade_stops_all_instances_and_starts_those_that_ran_and_are_enabled(host: Root, package: Package, scratch: Path) -> None:
    with_systemctl(host, package)
    host.run("sh", "-c", "rm /calls && touch /enabled")
    install(host, later_version(package, scratch / "later"))
    assert calls(host, "ottla@") == ["stop ottla@*.service before", "start ottla@east.service after"]
    assert "daemon-reload" in host.run("cat", "/calls").partition("start ottla@east")[0]
    assert not exists(host, "/run/ottla.instances")

    host.run("rm", "/calls")
    host.run("apt-get", "remove", "--yes", "ottla", how=networked())
    assert [call.rpartition(" ")[0] for call in calls(host, "ottla@")] == ["stop ottla@*.service"]
    assert not exists(host, "/run/ottla.instances")


def test_a_purge_keeps_the_records_of_instances_and_removes_their_logs(host: Root) -> None:
    host.run("sh", "-c", "mkdir /var/lib/ottla-east /var/lib/ottla-west /var/log/ottla-east && touch /var/lib/ottla-east/records")
    said = host.run("apt-get", "purge", "--yes", "ottla", how=networked())
    assert "ottla: the records in /var/lib/ottla-east stay; remove the directory if they are not needed" in said
    directories = ("/var/lib/ottla-east/records", "/var/lib/ottla-west", "/var/log/ottla-east", "/var/lib/ottla")
    assert [exists(host, directory) for directory in directories] == [True, False, False, False]


def test_a_removal_keeps_configuration_and_data_and_a_purge_keeps_data(host: Root, place: Place, package: Package) -> None:
    start_and_stop(host, place, write_a_record)
    host.run("sh", "-c", f"echo num.partitions=5 >> {CONFIGURATION}")
    host.run("apt-get", "remove", "--yes", "ottla", how=networked())
    assert [exists(host, path) for path in ("/usr/bin/ottla", "/usr/lib/ottla", UNIT)] == [False, False, False]
    assert exists(host, "/var/lib/ottla/data/kept-0")
    assert "num.partitions=5\n" in host.run("cat", CONFIGURATION)

    install(host, package.file)
    assert "num.partitions=5\n" in host.run("cat", CONFIGURATION)

    def look(started: Service) -> None:
        assert started.consume("kept") == ["a record"]

    start_and_stop(host, place, look)
    said = host.run("apt-get", "purge", "--yes", "ottla", how=networked())
    assert "ottla: the records in /var/lib/ottla stay; remove the directory if they are not needed" in said
    assert exists(host, "/var/lib/ottla/data/kept-0")
    gone = ("/etc/ottla", "/etc/default/ottla", "/var/log/ottla", "/usr/lib/ottla", "/usr/share/ottla")
    assert [path for path in gone if exists(host, path)] == []
    with pytest.raises(StepFailed, match="no packages found matching ottla"):
        host.run("dpkg-query", "--show", "ottla")


def test_a_purge_without_records_leaves_no_file(host: Root) -> None:
    host.run("apt-get", "purge", "--yes", "ottla", how=networked())
    left = host.run("sh", "-c", "find / -xdev -path /packages -prune -o -path /proc -prune -o -name '*ottla*' -print").splitlines()
    assert [path for path in left if not path.startswith(("/var/lib/apt", "/var/cache", "/packages"))] == []
