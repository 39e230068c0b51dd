"""A wheel, as an installer unpacks it: all that a broker needs, compiled as in a checkout. The Makefile installs the checkout itself."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from ottla.protocol.compiled import describe
from tests.distributions import VERSIONS

ROOT = Path(__file__).parents[2]
SOURCES = ("ottla", "declarations")
"""Its links are followed."""
ADDRESS = "https://forge.example/ottla/blob/v0.1.0"
RELATIVE_LINK = re.compile(r"\]\((?!https?:|#)")
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


def _build(source: Path, kind: str, **environment: str) -> Path:
    """A wheel or an sdist, made by the build backend of this environment."""
    code = f"from setuptools.build_meta import build_{kind}; build_{kind}({str(source / 'dist')!r})"
    (source / "dist").mkdir(exist_ok=True)
    _run("-c", code, cwd=source, **environment)
    (made,) = (source / "dist").glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


@pytest.mark.soak
def test_an_installed_broker_is_whole_and_as_fast_as_one_of_a_checkout(tmp_path: Path) -> None:
    source, wheels, installed = tmp_path / "source", tmp_path / "wheels", tmp_path / "installed"
    _copy(source)
    # pip makes an environment for the build, of nothing but what the project asks for. The modules are in the cache since the checkout
    # was installed.
    pip = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--constraint", "constraints.txt", "-w", str(wheels), ".")
    _run(*pip, cwd=source)
    (wheel,) = wheels.glob("ottla-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)  # one file after the other, as installers do: the order of their times is that of their names
    show = "import ottla.protocol.compiled as c; print(c.__file__, c.describe())"
    told = _run("-c", show, cwd=tmp_path, PYTHONPATH=str(installed))
    assert told.split(maxsplit=1) == [str(installed / "ottla" / "protocol" / "compiled.py"), describe() + "\n"]
    assert "serve" in _run("-m", "ottla", "--help", cwd=tmp_path, PYTHONPATH=str(installed))
    (scripts,) = installed.glob("*.dist-info/entry_points.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert f"ottla = {project['project']['scripts']['ottla']}" in scripts.read_text()
    assert sorted(path.name.partition("-")[0] for path in installed.iterdir()) == ["ottla", "ottla"]  # the package, and its metadata
    assert not RELATIVE_LINK.search(_metadata(wheel))


def _both(source: Path) -> tuple[Path, Path]:
    """A pure wheel and an sdist of a copy of the checkout."""
    _copy(source)
    settings = {"SOURCE_DATE_EPOCH": "1700000000", "OTTLA_SOURCE_URL": ADDRESS, "OTTLA_PURE_PYTHON": "1"}
    return _build(source, "wheel", **settings), _build(source, "sdist", **settings)


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel without compiled modules, and an sdist, which are made quickly."""
    wheel, sdist = _both(tmp_path_factory.mktemp("pure"))
    assert wheel.name.endswith("-py3-none-any.whl")
    return wheel, sdist


@pytest.mark.soak
def test_the_same_sources_give_the_same_files(pure: tuple[Path, Path], tmp_path: Path) -> None:
    assert [file.read_bytes() for file in _both(tmp_path)] == [file.read_bytes() for file in pure]


def test_the_description_has_the_links_of_the_readme_and_all_are_absolute(pure: tuple[Path, Path]) -> None:
    metadata = _metadata(pure[0])
    links = RELATIVE_LINK.findall((ROOT / "README.md").read_text())
    assert len(links) > 10
    assert not RELATIVE_LINK.search(metadata)
    assert metadata.count(f"]({ADDRESS}/") == len(links)
    assert f"Project-URL: Source, {ADDRESS}\n" in metadata
    assert "Requires-Python: >=3.11\n" in metadata


def test_the_wheel_has_types_and_names_every_python_that_it_is_made_for(pure: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(pure[0]) as archive:
        assert "ottla/py.typed" in archive.namelist()
    classifiers = re.findall(r"^Classifier: (.*)$", _metadata(pure[0]), flags=re.MULTILINE)
    assert {"Typing :: Typed", *(f"Programming Language :: Python :: {version}" for version in VERSIONS)} <= set(classifiers)


@pytest.mark.soak
def test_the_wheel_of_the_plugin_gives_its_fixtures_to_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    source, installed, project = tmp_path / "source", tmp_path / "installed", tmp_path / "project"
    shutil.copytree(ROOT / "pytest-ottla", source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    wheel = _build(source, "wheel")
    assert {"Requires-Dist: ottla", "Classifier: Framework :: Pytest"} <= set(_metadata(wheel).splitlines())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    project.mkdir()
    test = "def test_it(kafka):\n    topic = kafka.topic()\n    assert kafka.produce(topic, [b'x']) == [0]\n"
    (project / "test_orders.py").write_text(test)
    said = _run("-m", "pytest", "-p", "no:cacheprovider", cwd=project, PYTHONPATH=str(installed))
    assert re.search(r"^plugins: .*\bottla-0\.1\.0", said, flags=re.MULTILINE)
    assert "1 passed" in said


def test_an_installer_refuses_the_wheel_for_an_older_python_in_one_line(pure: tuple[Path, Path], tmp_path: Path) -> None:
    options = ("--quiet", "--no-deps", "--no-index", "--only-binary=:all:", "--python-version=3.10", f"--dest={tmp_path}")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options, str(pure[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "ERROR: Package 'ottla' requires a different Python: 3.10.0 not in '>=3.11'\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
def test_a_distribution_with_a_package_of_a_floors_name_lives_beside_it(pure: tuple[Path, Path], tmp_path: Path) -> None:
    wheel = pure[0]
    other = tmp_path / "other-1.0-py3-none-any.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("config/__init__.py", "OWNER = 'other'\n")
        archive.writestr("other-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
        archive.writestr("other-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("other-1.0.dist-info/RECORD", "config/__init__.py,,\n")
    for number, wheels in enumerate(((wheel, other), (other, wheel))):
        environment = tmp_path / f"env-{number}"
        venv.create(environment, symlinks=True, with_pip=False)
        python = str(environment / "bin" / "python")
        for each in wheels:
            install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-compile", "--no-deps", "--no-index", str(each))
            _run(*install, cwd=tmp_path)
        # What both depend on comes from the environment of the tests. It is behind that of the test.
        dependencies = str(Path(pytest.__file__).parents[1])
        assert _run("-c", "import config; print(config.OWNER)", cwd=tmp_path, python=python) == "other\n"
        code = f"import sys; sys.path.append({dependencies!r})"
        code += "; from ottla.cli.main import main; [main([each, '--help'], 'ottla', standalone_mode=False) for each in sys.argv[1:]]"
        commands = ("topics", "serve", "cluster", "dump-log")
        said = _run("-c", code, *commands, cwd=tmp_path, python=python)
        assert [command for command in commands if f"Usage: ottla {command}" in said] == list(commands)
