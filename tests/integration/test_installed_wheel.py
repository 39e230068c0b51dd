"""A wheel, as an installer unpacks it: all that a broker needs, compiled as in a checkout. The Makefile installs the checkout itself."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from protocol.compiled import describe

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _run(*arguments: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_installed_broker_is_whole_and_as_fast_as_one_of_a_checkout(tmp_path: Path) -> None:
    source, wheels, installed = tmp_path / "source", tmp_path / "wheels", tmp_path / "installed"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = [pattern.split(".")[0].removesuffix("*") for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]]
    for package in packages:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("*.so", "*.digest", "__pycache__", "results"))
    for name in ("pyproject.toml", "setup.py", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--constraint", "constraints.txt", "--wheel-dir", str(wheels), ".")
    _run(*build, cwd=source, CFLAGS="-O0")  # nothing of it runs for long
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)  # one file after the other, as installers do: the order of their times is that of their names
    told = _run("-c", "import protocol.compiled as c; print(c.__file__, c.describe())", cwd=tmp_path, PYTHONPATH=str(installed))
    assert told.split(maxsplit=1) == [str(installed / "protocol" / "compiled.py"), describe() + "\n"]
    assert "serve" in _run("-m", "broker", "--help", cwd=tmp_path, PYTHONPATH=str(installed))
    (scripts,) = installed.glob("*.dist-info/entry_points.txt")
    assert f"ottla = {project['project']['scripts']['ottla']}" in scripts.read_text()
