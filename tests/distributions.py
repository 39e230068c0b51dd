"""Makes wheels for the Pythons at hand, a pure wheel, an archive of the sources and a wheel of pytest-ottla, in `dist`; tests the wheels.

`python -m tests.distributions [TESTS...]`. A wheel has one top-level package, and no link in its description is relative. A wheel of Ottla
for one Python has all compiled modules, and the tag of the Linux systems that can run them (`tests/wheel_tags.py`). OTTLA_SOURCE_URL is
where the sources can be read; links of the description lead there. With tests, each wheel is installed into an environment of its own,
without a compiler on the PATH. The tests run there in a folder without the floors, and import the installed packages. Where the package
`ziglang` is installed, wheels for aarch64 are made, too, and not run. One wheel is made again of the archive, and must be the same.
"""

import hashlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import cross_compiler
from tests.wheel_tags import publishable

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PLUGIN = ROOT / "pytest-ottla"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
EARLIEST = 315532800
"""The first time that a zip file can hold, seconds since 1970."""
REQUIREMENTS = ("pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100", "kio>=0.6", "cryptography>=44", "PyJWT>=2.10")
FILES = ("pyproject.toml", "README.md", "docs/protocol-support.md", "docs/formats.md")
"""Files of the checkout that tests read."""
SOURCES = (
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
    "ottla/broker/server.py",
    "ottla/protocol/cursors/fields.pxd",
    "declarations/writer.py",
)
RELATIVE_LINK = re.compile(r"\]\((?!https?:|#)")


def check_wheel(wheel: Path, package: str) -> None:
    """Raises SystemExit unless the wheel has this one package, and its description no relative link."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    if tops != {package}:
        raise SystemExit(f"{wheel.name} has the top-level packages {sorted(tops)}")
    if RELATIVE_LINK.search(metadata):
        raise SystemExit(f"{wheel.name} has a relative link in its description")


def check_compiled(wheel: Path) -> None:
    """Raises SystemExit unless a wheel for one Python has all compiled modules, and the pure wheel none."""
    with zipfile.ZipFile(wheel) as archive, TemporaryDirectory() as folder:
        archive.extractall(folder)
        protocol = Path(folder, "ottla", "protocol")
        is_current = runpy.run_path(str(protocol / "hot_modules.py"))["is_current"]
        records = [record.read_text(encoding="ascii") for record in protocol.glob("compiled.*.digest")]
        is_compiled = len(records) == 1 and is_current(Path(folder), records[0])
    if is_compiled == wheel.name.endswith("-none-any.whl"):
        raise SystemExit(f"{wheel.name} is {'' if is_compiled else 'not '}compiled")


def check_sdist(sdist: Path) -> None:
    """Raises SystemExit unless the archive has what a build needs."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = {*SOURCES, "constraints.txt"} - names
    if missing:
        raise SystemExit(f"{sdist.name} lacks {', '.join(sorted(missing))}")


def check_repeatable(wheel: Path, sdist: Path, python: str) -> None:
    """Raises SystemExit unless this Python makes the same wheel again of the archive of the sources, in another folder."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": made_at()}
    with TemporaryDirectory() as folder:
        make_wheel(python, environment, sdist, Path(folder))
        again = publishable(next(Path(folder).glob("*.whl")))
        if (again.name, again.read_bytes()) != (wheel.name, wheel.read_bytes()):
            raise SystemExit(f"{sdist.name} makes another {again.name}")


def pythons() -> dict[str, str]:
    """The Pythons at hand that can compile, by the tag of their wheels, as `cp311`."""
    code = "import os, pip, sysconfig; open(os.path.join(sysconfig.get_path('include'), 'Python.h')).close()"
    found = {}
    for version in VERSIONS:
        managed = sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python"))
        for python in (Path(f"/usr/bin/python{version}"), *managed):
            if python.exists() and subprocess.run([python, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                found[f"cp{version.replace('.', '')}"] = str(python)
                break
        else:
            print(f"no wheel for Python {version}: there is none at hand with pip and its headers", flush=True)
    return found


def made_at() -> str:
    """The time of all files: SOURCE_DATE_EPOCH, or that of the last commit."""
    done = subprocess.run(["git", "show", "--no-patch", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return os.environ.get("SOURCE_DATE_EPOCH") or done.stdout.strip() or str(EARLIEST)


def build(compilers: dict[str, str]) -> None:
    """Make everything anew. Raises CalledProcessError."""
    shutil.rmtree(DIST, ignore_errors=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": made_at()}
    for python in compilers.values():
        make_wheel(python, environment)
    make_wheel(sys.executable, {**environment, "OTTLA_PURE_PYTHON": "1"})
    cross = cross_compiler.compiler()
    if cross is None:
        print(f"no wheels for {cross_compiler.PROCESSOR}: the package ziglang is missing", flush=True)
    for python in compilers.values() if cross is not None else ():
        with TemporaryDirectory() as folder:
            make_wheel(python, environment | cross_compiler.settings(cross, python, Path(folder)))
    for wheel in sorted(DIST.glob("ottla-*.whl")):
        publishable(wheel)
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(DIST)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps", "--wheel-dir", DIST, PLUGIN]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def make_wheel(python: str, environment: dict[str, str], source: Path = ROOT, folder: Path = DIST) -> None:
    """Make a wheel for this Python. Raises CalledProcessError."""
    for left in ROOT.glob("build/lib*"):
        shutil.rmtree(left)
    print(f"a wheel by {python} {environment.get('OTTLA_PLATFORM', '')}".rstrip(), flush=True)
    command = [python, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def run_tests(wheel: Path, python: str, tests: list[str]) -> None:
    """Install the wheel for this Python into an environment of its own, and run the tests there. Raises CalledProcessError."""
    with TemporaryDirectory() as folder:
        environment = Path(folder, "env")
        subprocess.run([python, "-m", "venv", environment], check=True)
        installed = str(environment / "bin" / "python")
        without_compiler = {**os.environ, "PATH": str(environment / "bin"), "CC": "false"}
        pip = [installed, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
        subprocess.run([*pip, wheel, *REQUIREMENTS], env=without_compiler, check=True)
        code = "import ottla.protocol.compiled as c; print(c.ROOT); print(c.describe())"
        told = subprocess.run([installed, "-c", code], cwd=folder, capture_output=True, text=True, check=True).stdout.splitlines()
        print(f"{wheel.name}: {told[1]}", flush=True)
        if (told[1] == "compiled") == wheel.name.endswith("-none-any.whl"):
            raise SystemExit(f"{wheel.name} does not run as it was made")
        work = Path(folder, "work")
        shutil.copytree(ROOT / "tests", work / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            (work / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, work / name)
        command = [installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not java", *tests]
        subprocess.run(command, cwd=work, env={**os.environ, "PYTHONPATH": told[0]}, check=True)


def main(tests: list[str]) -> None:
    """See the module."""
    compilers = pythons()
    build(compilers)
    wheels = sorted(DIST.glob("ottla-*.whl"))
    (plugin,) = DIST.glob("pytest_ottla-*.whl")
    (sdist,) = DIST.glob("*.tar.gz")
    for wheel in wheels:
        check_wheel(wheel, "ottla")
        check_compiled(wheel)
    check_wheel(plugin, "pytest_ottla")
    check_sdist(sdist)
    for file in (*wheels, plugin, sdist):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}", flush=True)
    if tests and compilers:
        tag, python = next(iter(compilers.items()))
        (first,) = (wheel for wheel in wheels if f"-{tag}-" in wheel.name and not wheel.name.endswith(f"{cross_compiler.PROCESSOR}.whl"))
        check_repeatable(first, sdist, python)
        print(f"{first.name} is the same again, made of {sdist.name}", flush=True)
    for wheel in wheels if tests else ():
        if wheel.name.endswith(f"{cross_compiler.PROCESSOR}.whl"):
            print(f"{wheel.name} is not run: this machine is no {cross_compiler.PROCESSOR}", flush=True)
            continue
        run_tests(wheel, compilers.get(wheel.name.split("-")[2], sys.executable), tests)


if __name__ == "__main__":
    main(sys.argv[1:])
