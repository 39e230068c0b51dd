"""Replaces an installed Ottla of an earlier layout by this one: no file of the old one is left, and everything that it stored is in use."""

import os
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.packages.sources import copy_to, sources
from tests.support.apache_kafka.ports import free_ports

ROOT = Path(__file__).parents[2]
EARLIER = "2668c0c1"
"""The last commit whose wheel kept the floors in a folder that only its own processes had on their path."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def wheel(sources: Path, to: Path) -> Path:
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(to)!r})"
    to.mkdir()
    environment = {**os.environ, "OTTLA_PURE_PYTHON": "1", "PYTHONPATH": ""}
    subprocess.run([sys.executable, "-P", "-c", code], cwd=sources, env=environment, check=True, capture_output=True)
    (made,) = to.glob("*.whl")
    return made


class Host:
    """A host with an installation, a directory of data, a configuration, and a profile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = folder / "environment"
        self.port = free_ports(1)[0]
        venv.create(self.environment, symlinks=True, with_pip=False)
        self.packages = next(self.environment.glob("lib/python*/site-packages"))
        # What both depend on comes from the environment of the tests, behind what is installed here.
        (self.packages / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
        (folder / "server.properties").write_text(
            f"listeners=PLAINTEXT://127.0.0.1:{self.port}\nlog.dirs={folder / 'data'}\nbroker.id=3\nnum.partitions=2\n"
        )
        (folder / "profiles.toml").write_text(f'[here]\nbootstrap-server = "127.0.0.1:{self.port}"\n')

    def install(self, made: Path) -> None:
        python = str(self.environment / "bin" / "python")
        options = ("--quiet", "--no-deps", "--no-index", "--no-compile", "--force-reinstall")
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", *options, str(made)]
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder)

    def command(self, *arguments: str) -> list[str]:
        return [str(self.environment / "bin" / "ottla"), *arguments]

    @property
    def variables(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KAFKA_", "OTTLA_"))}
        return {**inherited, "OTTLA_PROFILES": str(self.folder / "profiles.toml")}

    def ottla(self, *arguments: str, written: str = "") -> str:
        done = subprocess.run(
            self.command(*arguments, "--profile", "here"),
            cwd=self.folder, env=self.variables, input=written, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def serving(self) -> Iterator[None]:
        with (self.folder / "broker.log").open("ab") as log:
            broker = subprocess.Popen(
                self.command("serve", "server.properties"), cwd=self.folder, env=self.variables, stdout=log, stderr=log
            )
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    self.ottla("topics", "list")
                    break
                except AssertionError:
                    assert broker.poll() is None, (self.folder / "broker.log").read_text()
                    assert time.monotonic() < deadline
            yield
        finally:
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(60) == 0, (self.folder / "broker.log").read_text()


def test_an_installed_broker_is_replaced_by_a_later_one_without_a_manual_step(tmp_path: Path) -> None:
    archived = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, capture_output=True, check=False)
    if archived.returncode != 0:
        pytest.skip(f"the history has no commit {EARLIER}")
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    subprocess.run(["tar", "x"], cwd=old, input=archived.stdout, check=True)
    copy_to(new, sources())
    host = Host(tmp_path)
    host.install(wheel(old, tmp_path / "old-wheel"))
    with host.serving():
        host.ottla("topics", "create", "orders", "--partitions", "1")
        host.ottla("configs", "alter", "topic", "orders", "--set", "retention.ms=123456789")
        host.ottla("configs", "alter", "broker", "default", "--set", "log.cleaner.threads=2")
        host.ottla("produce", "orders", written="one\ntwo\nthree\n")
        assert host.ottla("consume", "-G", "readers", "-c", "2", "orders").splitlines() == ["one", "two"]

    host.install(wheel(new, tmp_path / "new-wheel"))
    listed = {line.split(",")[0] for record in host.packages.glob("ottla-*.dist-info/RECORD") for line in record.read_text().splitlines()}
    there = {str(path.relative_to(host.packages)) for path in (host.packages / "ottla").rglob("*") if path.is_file()}
    assert {path for path in there if "__pycache__" not in path} == {path for path in listed if path.startswith("ottla/")}

    with host.serving():
        assert host.ottla("consume", "-e", "orders").splitlines() == ["one", "two", "three"]
        assert host.ottla("consume", "-G", "readers", "-c", "1", "orders").splitlines() == ["three"]
        assert "123456789" in host.ottla("configs", "describe", "topic", "orders")
        assert "log.cleaner.threads" in host.ottla("configs", "describe", "broker", "default")
        host.ottla("produce", "orders", written="four\n")
        assert host.ottla("consume", "-o", "3", "-e", "orders").splitlines() == ["four"]
