"""A project whose folders have the names of the floors keeps them, and everything of Ottla works in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.main import COMMANDS

NAMES = ("benchmarks", "broker", "config", "controller", "coordination", "protocol", "replication", "storage")


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
    python = [sys.executable, "-P", "-m"]
    ended = run([*python, "ottla.storage.cleaner.worker", str(os.getpid())], project, path)
    assert (ended.returncode, ended.stderr) == (0, "")
    ended = run([*python, "ottla.broker.remote.store_worker", "0", "1"], project, path)  # its broker is not that process
    assert (ended.returncode, ended.stderr) == (0, "")
    alone = run([*python, "ottla.cli.supervised", "1", "serve"], project, path)
    assert alone.stderr == "ottla: the supervisor ended before its broker began\n"


@pytest.mark.parametrize("path", [None, "."])
@pytest.mark.parametrize("module", ["ottla.testing", "ottla.client"])
def test_the_libraries_work_in_such_a_project(module: str, path: str | None, project: Path) -> None:
    found = run([sys.executable, "-c", f"import {module}; import config"], project, path)
    assert found.stderr == "config of the project was imported\n"


def test_a_floor_is_no_package_of_its_own(tmp_path: Path) -> None:
    code = "import importlib.util, sys; print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])"
    assert run([sys.executable, "-P", "-c", code, *NAMES], tmp_path, None).stdout == "[]\n"


def test_a_program_of_the_project_gets_its_own_packages(project: Path) -> None:
    (project / "own.py").write_text("import config\n")
    assert run([sys.executable, "own.py"], project, None).stderr == "config of the project was imported\n"
