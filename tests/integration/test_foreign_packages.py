"""A project whose folders have the names of the floors neither breaks a command, nor gets the floors instead of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.main import COMMANDS
from ottla.launcher import FLOORS, command

NAMES = ("benchmarks", "broker", "config", "controller", "protocol", "replication", "storage")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a package for each floor's name, which must not be imported."""
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('{name} of the project was imported')\n")
    return tmp_path


def run(arguments: list[str], project: Path, path: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = path
    return subprocess.run(arguments, cwd=project, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("path", [None, "."])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_works_in_such_a_project(name: str, path: str | None, project: Path) -> None:
    done = run([sys.executable, "-m", "ottla", name, "--help"], project, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: ottla {name}")


@pytest.mark.parametrize("path", [None, "."])
def test_child_processes_work_in_such_a_project(path: str | None, project: Path) -> None:
    ended = run(command("ottla.storage.cleaner.worker", str(os.getpid())), project, path)
    assert (ended.returncode, ended.stderr) == (0, "")
    alone = run(command("ottla.cli.supervised", "1", "serve"), project, path)
    assert alone.stderr == "ottla: the supervisor ended before its broker began\n"


def test_a_child_process_sees_its_own_arguments(tmp_path: Path) -> None:
    assert run(command("broker", "topics", "--help"), tmp_path, None).stdout.startswith("Usage: ottla topics")


def test_nothing_of_the_floors_leaks_into_the_environment_of_a_child(project: Path) -> None:
    code = (
        f"import os, sys; sys.path.insert(0, {FLOORS!r}); import ottla.launcher as l; l.use_floors(); print(os.environ.get('PYTHONPATH'))"
    )
    assert run([sys.executable, "-P", "-c", code], project, None).stdout == "None\n"


def test_a_program_of_the_project_gets_its_own_packages(project: Path) -> None:
    (project / "own.py").write_text("import config\n")
    assert run([sys.executable, "own.py"], project, None).stderr == "config of the project was imported\n"
