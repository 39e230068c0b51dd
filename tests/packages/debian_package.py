"""Builds the Debian package in a root, installs it in others, makes a later version of it, and starts its unit as systemd would."""

import configparser
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.packages import host
from tests.packages.networks import Place
from tests.packages.roots import AS_ROOT, How, Root, Running, remove
from tests.packages.sources import ROOT, copy_to, digest_of, only, sources

SOURCE = "/build/ottla"
QUIET = {"DEBIAN_FRONTEND": "noninteractive"}
START_SECONDS = 60.0
NOTIFICATIONS = "/run/notifications"


class Package(NamedTuple):
    """A package, and the root in which it was built."""

    file: Path
    builder: Root


def networked(folder: str = "/") -> How:
    """How a command is carried out that needs Debian's archive or the index of Python packages."""
    return How(folder=folder, environment={**QUIET, **host.environment()})


def build_package(work: Path, base: Path) -> Package:
    """Build the package of the checkout, unless that was done before. Raises StepFailed."""
    files = sources()
    return _built(only(work, "builder", digest_of(files)), base, lambda place: copy_to(place, files))


def build_package_of(commit: str, work: Path, base: Path) -> Package:
    """Build the package of an earlier commit as Python alone, unless that was done before. Raises StepFailed, CalledProcessError."""

    def unpack(place: Path) -> None:
        place.mkdir(parents=True)
        archived = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "x"], cwd=place, input=archived, check=True)

    return _built(only(work, "earlier", commit), base, unpack, {"OTTLA_PURE_PYTHON": "1"})


def _built(folder: Path, base: Path, unpack: Callable[[Path], None], variables: Mapping[str, str] = MappingProxyType({})) -> Package:
    marker = folder / "complete"
    if not marker.exists():
        remove(folder)
    builder = Root(folder, [base])
    if not marker.exists():
        unpack(builder.changes / SOURCE.lstrip("/"))
        how = networked(SOURCE)
        how = how._replace(environment={**how.environment, **variables})
        builder.run("apt-get", "update", how=networked())
        builder.run("apt-get", "build-dep", "--yes", "--no-install-recommends", "./", how=how)
        builder.run("dpkg-buildpackage", "--build=binary", "--no-sign", how=how)
        marker.touch()
    (file,) = (builder.changes / "build").glob("ottla_*.deb")
    return Package(file, builder)


def install(root: Root, package: Path, *options: str) -> str:
    """What apt says while it installs a package file, with what the package depends on."""
    place = "/packages/" + package.name
    root.write(place, package.read_bytes())
    return root.run("apt-get", "install", "--yes", "--no-install-recommends", *options, place, how=networked())


def later_version(package: Package, folder: Path) -> Path:
    """The package with a higher version, other conffiles and one page less. Its scripts are the same."""
    work = Root(folder, package.builder.all_layers)
    built = f"/build/{package.file.name}"
    work.run("dpkg-deb", "--raw-extract", built, "/later")
    tree = work.changes / "later"
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub(r"^Version: .*$", "Version: 0.1.0+later", control.read_text(), flags=re.MULTILINE))
    for name in ("ottla/server.properties", "default/ottla"):
        with (tree / "etc" / name).open("a") as conffile:
            conffile.write("# of the later version\n")
    (tree / "usr" / "share" / "doc" / "ottla" / "operations.md").unlink()
    work.run("dpkg-deb", "-Znone", "--build", "/later", "/later.deb")
    target = folder / "ottla_later.deb"
    shutil.copy(work.changes / "later.deb", target)
    return target


class Unit(NamedTuple):
    """What a unit of systemd says of a process."""

    command: list[str]
    how: How


def unit_of(root: Root, path: str, instance: str = "") -> Unit:
    """Read a unit, or an instance of a template, and the file with its environment."""
    unit = configparser.RawConfigParser(strict=False)
    unit.read_string(root.run("cat", path).replace("%i", instance))
    service = unit["Service"]
    variables = root.run("cat", service["EnvironmentFile"].removeprefix("-"))
    environment = dict(re.findall(r"^(\w+)=(.*)$", variables, flags=re.MULTILINE))
    environment["NOTIFY_SOCKET"] = f"{NOTIFICATIONS}/socket"
    how = How(f"{service['User']}:{service['Group']}", service["WorkingDirectory"], environment, service["UMask"])
    return Unit(service["ExecStart"].split(), how)


@contextmanager
def service(root: Root, place: Place, unit: Unit) -> Iterator["Service"]:
    """Start a unit's process, with a socket that hears its notifications as systemd's does."""
    folder = root.folder / "notifications"
    folder.mkdir(exist_ok=True)
    (root.changes / NOTIFICATIONS.lstrip("/")).mkdir(parents=True, exist_ok=True)
    root.volumes = {NOTIFICATIONS: folder}
    path = folder / "socket"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications:
        notifications.bind(str(path))
        path.chmod(0o777)
        notifications.settimeout(START_SECONDS)
        with Running(root, place, unit.command, unit.how) as running:
            yield Service(running, notifications)


class Service:
    """A started unit."""

    def __init__(self, running: Running, notifications: socket.socket) -> None:
        self.running = running
        self._notifications = notifications

    def wait_for(self, notification: str) -> None:
        """Return once the process has sent this. Raises TimeoutError with its output."""
        while True:
            try:
                heard = self._notifications.recv(4096).decode().splitlines()
            except TimeoutError:
                raise TimeoutError(f"{notification} was not sent:\n{self.running.said()}") from None
            if notification in heard:
                return

    def produce(self, topic: str, value: str) -> None:
        """Write a record as an administrator of the host would."""
        self.running.run("ottla", "produce", topic, "--create-topic", how=AS_ROOT, input=f"{value}\n")

    def consume(self, topic: str) -> list[str]:
        """All values of a topic."""
        return self.running.run("ottla", "consume", "-e", topic, how=AS_ROOT).splitlines()
