"""The first start of a clone: the port is tried before anything is installed, links come back, and a failed compiler leaves Python."""

import fcntl
import os
import runpy
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
START = SimpleNamespace(**runpy.run_path(str(ROOT / "start.py")))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the sources that a start looks at."""
    folder = tmp_path / "clone"
    (folder / "ottla").mkdir(parents=True)
    for name in ("start.py", "pyproject.toml", "constraints.txt", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in START.FLOORS:
        (folder / name).mkdir()
        (folder / "ottla" / name).symlink_to(f"../{name}")
    shutil.copy(ROOT / "protocol" / "hot_modules.py", folder / "protocol")
    return folder


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def start(clone: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "OTTLA_"))}
    command = [sys.executable, "start.py", *arguments]
    return subprocess.run(command, cwd=clone, env=inherited | variables, capture_output=True, text=True, timeout=60, check=False)


def test_a_port_in_use_ends_the_start_before_anything_is_installed(clone: Path, taken: int) -> None:
    ended = start(clone, "serve", "--port", str(taken))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert (
        ended.stderr == f"ottla: 127.0.0.1:{taken} cannot be used (Address already in use): name another port, as in PORT={taken + 100}\n"
    )
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize("arguments", [["serve"], ["serve", "--secure"]])
def test_the_listeners_of_the_environment_are_tried(clone: Path, taken: int, arguments: list[str]) -> None:
    ended = start(clone, *arguments, KAFKA_LISTENERS=f"PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:{taken}")
    assert ended.returncode == 1
    assert f"127.0.0.1:{taken} cannot be used" in ended.stderr
    assert not (clone / ".venv").exists()


def test_a_cluster_tries_the_port_of_each_broker(clone: Path, taken: int) -> None:
    ended = start(clone, "cluster", "--brokers", "2", "--port", str(taken - 1))
    assert ended.returncode == 1
    assert f"127.0.0.1:{taken} cannot be used" in ended.stderr or f"127.0.0.1:{taken - 1} cannot be used" in ended.stderr


@pytest.mark.parametrize("command", ["serve", "cluster"])
@pytest.mark.parametrize("port", [65536, -1])
def test_a_number_that_is_no_port_is_refused(clone: Path, command: str, port: int) -> None:
    ended = start(clone, command, f"--port={port}")
    assert (ended.returncode, ended.stderr) == (1, f"ottla: {port} is no port: name one from 1 to 65535, as in PORT=9192\n")
    assert not (clone / ".venv").exists()


def test_the_port_that_a_refusal_names_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(socket.socket, "bind", refused)
    with pytest.raises(START.CannotStart, match=r"name another port, as in PORT=65400$"):
        START.check_ports([("127.0.0.1", 65500)])


def test_the_addresses_are_those_of_the_listeners_unless_a_port_is_named() -> None:
    assert START.addresses(None, None) == [("127.0.0.1", 9092)]
    assert START.addresses(9192, "PLAINTEXT://:9092") == [("127.0.0.1", 9192)]
    assert START.addresses(None, "PLAINTEXT://:9092,SSL://[::1]:9093") == [("", 9092), ("::1", 9093)]


@pytest.mark.parametrize("lost", ["no link", "text"])
def test_links_that_a_copy_has_lost_are_made_again(clone: Path, taken: int, lost: str) -> None:
    for name in ("broker", "storage"):
        (clone / "ottla" / name).unlink()
        if lost == "text":
            (clone / "ottla" / name).write_text(f"../{name}")
    ended = start(clone, "serve", "--port", str(taken))
    assert ended.stderr.startswith("ottla: made the links ottla/{broker,storage}, which this copy of the sources had lost\n")
    assert all((clone / "ottla" / name).is_dir() for name in START.FLOORS)


def test_a_folder_that_cannot_be_written_is_named(clone: Path) -> None:
    (clone / "file").touch()
    ended = start(clone, "--venv", "file/venv", "serve", "--port", "0")
    assert ended.returncode == 1
    assert "file/venv cannot be written (Not a directory): name a folder for the packages by VENV=" in ended.stderr


def installed(clone: Path, python: str) -> None:
    """An environment in which everything is installed: a program in the place of the broker, and one in the place of Python."""
    binaries = clone / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name, text in (("python", python), ("ottla", 'echo "broker $*"')):
        (binaries / name).write_text(f"#!/bin/sh\n{text}\n")
        (binaries / name).chmod(0o755)
    (clone / ".venv" / "build-tools").mkdir()
    project = clone / "pyproject.toml"
    (clone / ".venv" / "build-tools" / ".installed").write_text(START._digest(project))
    (clone / ".venv" / ".packages").write_text(START._digest(project, clone / "constraints.txt"))


def test_an_installed_clone_becomes_the_broker(clone: Path) -> None:
    installed(clone, "exit 1")
    ran = start(clone, "serve", "--port", "0", "--data", "there", OTTLA_PURE_PYTHON="1")
    assert (ran.returncode, ran.stdout) == (0, "broker serve --set log.dirs=there\n")
    assert ran.stderr == "ottla: the hot path runs as Python: OTTLA_PURE_PYTHON is set\n"


@pytest.mark.parametrize("arguments", [["--base-port", "0", "--set", "num.partitions=2"], ["--base-port=0"], ["--bro", "2"]])
def test_a_cluster_gets_the_arguments_that_are_not_those_of_the_start(clone: Path, arguments: list[str]) -> None:
    installed(clone, "exit 1")
    ran = start(clone, "cluster", "--brokers", "2", "--dir", "there", "--port", "0", *arguments, OTTLA_PURE_PYTHON="1")
    assert (ran.returncode, ran.stdout) == (0, f"broker cluster up 2 --dir there --base-port 0 {' '.join(arguments)}\n")


def test_the_ports_of_brokers_are_tried_unless_an_argument_names_others(clone: Path, taken: int) -> None:
    installed(clone, "exit 1")
    named = start(clone, "cluster", "--brokers", "1", "--port", str(taken), f"--base-port={taken + 1}", OTTLA_PURE_PYTHON="1")
    assert named.stdout.startswith("broker cluster up 1")
    assert start(clone, "cluster", "--brokers", "1", "--port", str(taken), OTTLA_PURE_PYTHON="1").returncode == 1


def test_an_argument_that_no_command_has_is_refused(clone: Path) -> None:
    ended = start(clone, "serve", "--base-port", "9192")
    assert ended.returncode == 2
    assert ended.stderr.endswith("error: unrecognized arguments: --base-port 9192\n")


def test_without_a_compiler_the_broker_runs_as_python(clone: Path) -> None:
    installed(clone, "exit 1")
    ran = start(clone, "serve", "--port", "0", CC="no-compiler-here")
    assert "runs as Python: there is no C compiler" in ran.stderr
    assert ran.stdout.startswith("broker serve")


def test_compiling_begins_with_a_line_and_a_compiler_that_fails_is_one_line_with_its_log_and_is_tried_again(clone: Path) -> None:
    installed(clone, "echo broken; exit 1")
    for _ in range(2):
        failed = start(clone, "compile")
        assert failed.returncode == 1
        announced, reason = failed.stderr.splitlines()
        assert announced.startswith("ottla: compiling the hot path, which takes two to four minutes")
        assert reason.startswith("ottla: the hot path could not be compiled, and runs as Python; ")
        assert (clone / ".venv" / "compiled.log").read_text() == "broken\n"


def test_compiled_modules_are_not_compiled_again(clone: Path) -> None:
    installed(clone, "exit 1")
    hot = runpy.run_path(str(clone / "protocol" / "hot_modules.py"))
    for name in (*hot["binaries"](), hot["record"]()):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).touch()
    (clone / hot["record"]()).write_text(hot["digest"](clone))
    compiled = start(clone, "compile")
    assert (compiled.returncode, compiled.stderr) == (0, "")
    assert start(clone, "serve", "--port", "0").stderr == ""


def test_an_installation_of_another_state_of_the_sources_is_made_again(clone: Path) -> None:
    installed(clone, 'echo "$*" >>asked')
    (clone / ".venv" / ".packages").write_text("")  # as a clone of the first layout has it
    ran = start(clone, "serve", "--port", "0", OTTLA_PURE_PYTHON="1")
    assert ran.stdout.startswith("broker serve")
    packages, checkout = (clone / "asked").read_text().splitlines()
    assert "install --no-compile --constraint" in packages
    assert checkout.endswith(f"--editable {clone}")
    start(clone, "serve", "--port", "0", OTTLA_PURE_PYTHON="1")
    assert len((clone / "asked").read_text().splitlines()) == 2


def test_the_packages_of_an_extra_are_installed_once(clone: Path) -> None:
    installed(clone, 'echo "$*" >>asked')
    for _ in range(2):
        assert start(clone, "install", "--extra", "console").returncode == 0
    packages, checkout = (clone / "asked").read_text().splitlines()
    assert "starlette" in packages
    assert "uvicorn" in packages
    assert checkout.endswith(f"--editable {clone}")


def test_a_start_waits_for_another_one_that_installs(clone: Path) -> None:
    installed(clone, "exit 1")
    command = [sys.executable, "start.py", "serve", "--port", "0"]
    with (clone / ".venv" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = {**os.environ, "OTTLA_PURE_PYTHON": "1"}
        with subprocess.Popen(command, cwd=clone, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as second:
            assert second.stderr is not None
            assert second.stdout is not None
            assert second.stderr.readline() == f"ottla: another start installs into {clone / '.venv'}: waiting for it\n"
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert second.stdout.read().startswith("broker serve")


def test_a_checkout_that_cannot_be_written_is_linked_and_runs_as_python(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = START.Environment(clone / ".venv")
    packages = environment._packages()
    packages.mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    environment.link()
    assert (packages / "ottla").resolve() == ROOT / "ottla"
    assert capsys.readouterr().err == f"ottla: {ROOT} cannot be written: it is linked, and runs as Python\n"
    if shutil.which("cc") and not environment.cannot_compile().startswith("Python's headers"):
        assert environment.cannot_compile() == "the checkout cannot be written"


def test_the_command_names_links_that_are_missing(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "ottla", tmp_path / "ottla", symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "console", "validate"))
    (tmp_path / "ottla" / "config").unlink()
    (tmp_path / "config").mkdir()
    for floor in START.FLOORS:
        if floor != "config":
            (tmp_path / floor).symlink_to(ROOT / floor)
    program = "import runpy, sys; sys.meta_path = [each for each in sys.meta_path if 'Editable' not in repr(each)]"  # of this checkout
    command = [sys.executable, "-P", "-c", f"{program}; sys.argv = ['ottla', 'serve']; runpy.run_module('ottla', run_name='__main__')"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr == (
        f"ottla: the links in {tmp_path / 'ottla'} are missing: `python3 {tmp_path / 'start.py'} install` makes them again\n"
    )


def test_an_old_python_is_refused_by_its_version() -> None:
    code = (
        "import runpy, sys; sys.version_info = (3, 9, 2); sys.argv = ['start.py', 'serve']; runpy.run_path('start.py', run_name='__main__')"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == f"ottla: Python 3.11 or newer is needed, and {sys.executable} is 3.9.2: name another one by PYTHON=\n"
