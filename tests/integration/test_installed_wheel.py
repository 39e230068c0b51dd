"""A wheel, as an installer unpacks it: all that a broker needs, compiled as in a checkout. The Makefile installs the checkout itself."""

import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from protocol.compiled import describe

ROOT = Path(__file__).parents[2]
SOURCES = ("broker", "benchmarks", "config", "controller", "ottla", "protocol", "replication", "storage")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _run(*arguments: str, cwd: Path, python: str = sys.executable, **environment: str) -> str:
    done = subprocess.run([python, *arguments], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _copy(source: Path) -> None:
    for package in SOURCES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("*.so", "*.digest", "__pycache__", "results"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)


def _wheel(source: Path, wheels: Path, **environment: str) -> Path:
    _run("-m", "pip", "wheel", "--quiet", "--no-deps", "--constraint", "constraints.txt", "-w", str(wheels), ".", cwd=source, **environment)
    (wheel,) = wheels.glob("ottla-*.whl")
    return wheel


def test_an_installed_broker_is_whole_and_as_fast_as_one_of_a_checkout(tmp_path: Path) -> None:
    source, installed = tmp_path / "source", tmp_path / "installed"
    _copy(source)
    wheel = _wheel(source, tmp_path / "wheels", CFLAGS="-O0")  # nothing of it runs for long
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)  # one file after the other, as installers do: the order of their times is that of their names
    show = "import ottla.launcher as l; l.use_floors(); import protocol.compiled as c; print(c.__file__, c.describe())"
    told = _run("-c", show, cwd=tmp_path, PYTHONPATH=str(installed))
    assert told.split(maxsplit=1) == [str(installed / "ottla" / "floors" / "protocol" / "compiled.py"), describe() + "\n"]
    assert "serve" in _run("-m", "ottla", "--help", cwd=tmp_path, PYTHONPATH=str(installed))
    (scripts,) = installed.glob("*.dist-info/entry_points.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert f"ottla = {project['project']['scripts']['ottla']}" in scripts.read_text()
    assert sorted(path.name.partition("-")[0] for path in installed.iterdir()) == ["ottla", "ottla"]  # the package, and its metadata


@pytest.fixture(scope="module")
def pure_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel without compiled modules, which is made quickly."""
    folder = tmp_path_factory.mktemp("pure")
    _copy(folder / "source")
    wheel = _wheel(folder / "source", folder / "wheels", OTTLA_PURE_PYTHON="1")
    assert wheel.name.endswith("-py3-none-any.whl")
    return wheel


def test_the_same_sources_give_the_same_files(tmp_path: Path) -> None:
    found = []
    for name in ("one", "other"):
        _copy(source := tmp_path / name)
        os.utime(source / "README.md", (1_000_000_000, 1_000_000_000 + len(name)))
        time = {"SOURCE_DATE_EPOCH": "1700000000"}
        wheel = _wheel(source, tmp_path / f"{name}-wheels", OTTLA_PURE_PYTHON="1", **time)
        code = f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path / name)!r})"
        _run("-c", code, cwd=source, **time)
        (sdist,) = source.glob("*.tar.gz")
        found.append([wheel.read_bytes(), sdist.read_bytes()])
    assert found[0] == found[1]


@pytest.mark.parametrize("ottla_is_first", [True, False])
def test_a_distribution_with_a_package_of_a_floors_name_lives_beside_it(ottla_is_first: bool, pure_wheel: Path, tmp_path: Path) -> None:
    other = tmp_path / "other-1.0-py3-none-any.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("config/__init__.py", "OWNER = 'other'\n")
        archive.writestr("other-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
        archive.writestr("other-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("other-1.0.dist-info/RECORD", "config/__init__.py,,\n")
    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    python = str(tmp_path / "env" / "bin" / "python")
    wheels = [pure_wheel, other] if ottla_is_first else [other, pure_wheel]
    for wheel in wheels:
        _run("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", str(wheel), cwd=tmp_path)
    # What both depend on comes from the environment of the tests. It is behind that of the test.
    dependencies = str(Path(pytest.__file__).parents[1])
    assert _run("-c", "import config; print(config.OWNER)", cwd=tmp_path, python=python) == "other\n"
    code = f"import sys; sys.path.append({dependencies!r}); from ottla.__main__ import main; main()"
    for command in ("topics", "serve", "cluster", "dump-log"):
        assert f"Usage: ottla {command}" in _run("-c", code, command, "--help", cwd=tmp_path, python=python)
