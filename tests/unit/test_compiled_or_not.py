"""Compiled modules are used when all are there and none of their sources has changed, or else not one of them."""

import importlib
import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from ottla.protocol import hot_modules
from ottla.protocol.compiled import IS_COMPILED, Sources, describe, why_not
from ottla.protocol.hot_modules import DECLARATIONS, HOT, NATIVE, binaries, digest, record, sources

ROOT = Path(__file__).parents[2]
FLOORS = ("broker", "coordination", "controller", "replication", "storage", "protocol", "config")
EVERY = 1 if "OTTLA_SOAK" in os.environ else 4
"""Which files are changed: each, or each fourth."""

OTHER = "ottla/broker/network/limits.py"
"""A file that is not compiled, and has constants whose types compiled modules use."""
compiled_alone = pytest.mark.skipif(not IS_COMPILED, reason=f"the hot path is {describe()} here")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with all sources, something in the place of every binary, and the record of a build, which tests leave as it was."""
    folder = tmp_path_factory.mktemp("build")
    for name in sources():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)
    for name in binaries():
        (folder / name).touch()
    shutil.copy(ROOT / OTHER, folder / OTHER)
    recorded = f"{digest(folder, [OTHER])}\n{OTHER}"
    (folder / record()).write_text(recorded)
    yield folder
    assert all((folder / name).exists() for name in binaries())
    assert (folder / record()).read_text() == recorded


@pytest.fixture
def build(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, for a test that leaves it as it was."""
    monkeypatch.delenv("OTTLA_PURE_PYTHON", raising=False)
    return copied


@contextmanager
def changed(path: Path, content: bytes | None) -> Iterator[None]:
    """A file has this content, or is not there."""
    before = path.read_bytes() if path.exists() else None
    _write(path, content)
    try:
        yield
    finally:
        _write(path, before)


def _write(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


def test_a_whole_build_is_used_whatever_the_times_of_its_files(build: Path) -> None:
    assert not why_not(build)
    for name in sources():
        if (build / name).exists():
            os.utime(build / name, (2**32, 2**32))
    assert not why_not(build)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in sources() if (ROOT / name).exists()][::EVERY])
def test_a_change_in_any_source_leaves_all_of_them_out(name: str, build: Path) -> None:
    with changed(build / name, (build / name).read_bytes() + b"\n"):
        assert "changed" in why_not(build)


@pytest.mark.slow
@pytest.mark.parametrize("name", sources()[::EVERY])
def test_a_source_that_comes_or_goes_leaves_all_of_them_out(name: str, build: Path) -> None:
    with changed(build / name, None if (build / name).exists() else b""):
        assert "changed" in why_not(build)


def test_so_does_a_change_in_a_file_that_only_gave_a_type(build: Path) -> None:
    assert OTHER not in sources()
    with changed(build / OTHER, (build / OTHER).read_bytes() + b"\n"):
        assert "changed" in why_not(build)


@pytest.mark.parametrize("name", binaries()[::EVERY])
def test_a_missing_binary_leaves_all_of_them_out(name: str, build: Path) -> None:
    with changed(build / name, None):
        assert why_not(build) == "not compiled"


def test_a_build_that_did_not_end_leaves_all_of_them_out(build: Path) -> None:
    with changed(build / record(), None):
        assert "to the end" in why_not(build)


def test_they_can_be_kept_out(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PURE_PYTHON", "1")
    assert "OTTLA_PURE_PYTHON" in why_not(build)


def test_every_declaration_and_every_module_in_cython_is_a_source() -> None:
    found = {f"ottla/{path.relative_to(ROOT)}" for floor in FLOORS for path in (ROOT / floor).rglob("*.p[xy][dx]")}
    assert found <= set(sources())
    assert not set(DECLARATIONS) - found
    assert all((ROOT / f"{name.replace('.', '/')}.pyx").exists() for name in NATIVE)


@pytest.mark.parametrize("name", HOT)
def test_every_hot_module_has_no_declarations_that_people_wrote_and_a_package_that_decides_first(name: str) -> None:
    assert not (ROOT / f"{name.replace('.', '/')}.pxd").exists()
    package = importlib.import_module(".".join(name.split(".")[:-1][:2]))
    assert hasattr(package, "compiled")


def found_by_a_process(root: Path, **environment: str) -> list[str]:
    """Whether it uses compiled modules, and the file of each hot one."""
    program = "import ottla.protocol.compiled, importlib, sys; print(ottla.protocol.compiled.IS_COMPILED)"
    program += "; print(*(importlib.import_module(name).__file__ for name in sys.argv[1:]))"
    command = [sys.executable, "-c", program, *HOT]
    return subprocess.run(command, cwd=root, env={**os.environ, **environment}, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.slow
@compiled_alone
def test_a_process_imports_all_of_them_or_the_source_of_each(tmp_path: Path) -> None:
    for floor in FLOORS:
        shutil.copytree(ROOT / floor, tmp_path / "ottla" / floor, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (ROOT / "ottla").glob("*.*"):
        shutil.copy(file, tmp_path / "ottla")
    shutil.copy(ROOT / "setup.py", tmp_path)
    shutil.copytree(ROOT / "declarations", tmp_path / "declarations")
    suffix = binaries()[0].removeprefix(hot_modules.SHARED.replace(".", "/"))
    is_compiled, *files = found_by_a_process(tmp_path, OTTLA_PURE_PYTHON="")
    assert is_compiled == "True"
    assert all(file.startswith(str(tmp_path)) and file.endswith(suffix) for file in files)

    is_compiled, *files = found_by_a_process(tmp_path, OTTLA_PURE_PYTHON="1")
    assert is_compiled == "False"
    assert all(file.endswith(".py") for file in files)

    with (tmp_path / HOT[0].replace(".", "/")).with_suffix(".py").open("a") as source:
        source.write("\n")
    is_compiled, *files = found_by_a_process(tmp_path, OTTLA_PURE_PYTHON="")
    assert is_compiled == "False"
    assert all(file.endswith(".py") for file in files)


TRANSLATOR = """
from pathlib import Path

def cythonize(group, build_dir, **_):
    for each in group:
        print("translated", each.name)
        file = Path(build_dir, each.sources[0]).with_suffix(".c")
        file.parent.mkdir(parents=True, exist_ok=True)
        source = Path(each.sources[0])
        file.write_text("#error" if source.exists() and "BROKEN" in source.read_text() else "")
"""


BUILDS = """
import os, runpy, sys, traceback
import setuptools.command.build_ext, setuptools.command.build_py, setuptools.command.sdist

for name in [name for name in sys.modules if name.startswith("Cython")]:
    del sys.modules[name]  # setuptools has looked for it
sys.argv = ["setup.py", "--quiet", "build_ext", "--inplace"]
for _ in sys.stdin:
    child = os.fork()
    if not child:
        status = 1
        try:
            runpy.run_path("setup.py", run_name="__main__")
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print("ended", os.waitpid(child, 0)[1], flush=True)
"""
"""Begins a build for every line that it reads, as `python setup.py` does, but imports setuptools once."""


TWO = ("ottla.protocol.cursors.request_reader", "ottla.protocol.cursors.response_writer")
"""Modules that share declarations."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of the hot modules, with what compiles them, and something in Cython's place that says what it is asked to translate."""
    root = tmp_path_factory.mktemp("project")
    for name in (
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "ottla/protocol/hot_modules.py",
        *DECLARATIONS,
        *(f"{name.replace('.', '/')}.py" for name in TWO),
        *(f"declarations/{path.name}" for path in (ROOT / "declarations").glob("*.py")),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    with (root / "ottla" / "protocol" / "hot_modules.py").open("a") as more:
        more.write(f"\nHOT, NATIVE = {TWO}, ()\n")
    (root / "tools" / "Cython").mkdir(parents=True)
    (root / "tools" / "Cython" / "__init__.py").write_text("__version__ = '1'\n")
    (root / "tools" / "Cython" / "Build.py").write_text(TRANSLATOR)
    return root


@pytest.fixture
def translated(project: Path) -> Iterator[Callable[[], set[str]]]:
    """What a build of the project translates."""
    command = [sys.executable, "-c", BUILDS]
    environment = {**os.environ, "PYTHONPATH": str(project / "tools"), "XDG_CACHE_HOME": str(project / "cache")}
    environment |= {"OTTLA_PURE_PYTHON": "", "OTTLA_PLATFORM": ""}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=project, env=environment, stdin=pipe, stdout=pipe, text=True) as builds:
        assert builds.stdin is not None
        assert builds.stdout is not None
        to, lines = builds.stdin, builds.stdout

        def build() -> set[str]:
            to.write("build\n")
            to.flush()
            found = set()
            for line in lines:
                word, _, name = line.strip().partition(" ")
                if word == "translated":
                    found.add(name)
                elif word == "ended":
                    assert name == "0"
                    return found
            raise AssertionError("no more builds")

        yield build


def binary(name: str) -> str:
    """The file of a compiled module."""
    return next(file for file in binaries() if file.startswith(f"{name.replace('.', '/')}."))


def append_line(file: Path) -> None:
    with file.open("a") as source:
        source.write("\n")


@pytest.mark.slow
def test_a_build_translates_what_has_changed_whatever_the_times_of_the_files(project: Path, translated: Callable[[], set[str]]) -> None:
    everything = {hot_modules.SHARED, *TWO}
    assert translated() == everything
    for path in project.rglob("*.p*"):
        os.utime(path, (2**32, 2**32))
    assert translated() == set()

    module = project / f"{TWO[0].replace('.', '/')}.py"
    module.write_text(f"{module.read_text()}\n")
    os.utime(module, (0, 0))
    assert translated() == {TWO[0]}

    append_line(project / "ottla" / "protocol" / "cursors" / "fields.pxd")
    assert translated() == set(TWO)

    (project / "tools" / "Cython" / "__init__.py").write_text("__version__ = '2'\n")
    assert translated() == everything


@pytest.mark.slow
@pytest.mark.parametrize("name", ["declarations/types.py", "setup.py"])
def test_a_change_of_what_compiles_leaves_the_modules_out_until_the_next_build(
    name: str, project: Path, translated: Callable[[], set[str]]
) -> None:
    def is_current() -> bool:
        of_project = runpy.run_path(str(project / "ottla" / "protocol" / "hot_modules.py"))
        return bool(of_project["is_current"](project, (project / record()).read_text()))

    translated()
    assert is_current()
    append_line(project / name)
    assert not is_current()
    translated()
    assert is_current()


@pytest.mark.slow
def test_a_module_that_fails_leaves_what_was_compiled_before_and_what_was_compiled_beside_it(
    project: Path, translated: Callable[[], set[str]]
) -> None:
    translated()
    built = {name: (project / name).read_bytes() for name in (*map(binary, TWO), record())}
    module = project / f"{TWO[0].replace('.', '/')}.py"
    with changed(module, module.read_bytes() + b"BROKEN = 1\n"):
        append_line(project / f"{TWO[1].replace('.', '/')}.py")
        assert translated() == set(TWO)
        assert {name: (project / name).read_bytes() for name in built} == built
        assert translated() == {TWO[0]}  # the other one is in the cache
    assert translated() == set()
    assert (project / record()).read_bytes() != built[record()]


@pytest.mark.slow
def test_a_build_that_was_killed_goes_on_where_it_was(project: Path, translated: Callable[[], set[str]]) -> None:
    translated()
    (project / record()).unlink()
    (project / binary(TWO[1])).unlink()
    assert translated() == set()
    assert (project / binary(TWO[1])).exists()
    assert (project / record()).exists()


@pytest.mark.slow
def test_a_cached_module_that_is_damaged_is_compiled_again(project: Path, translated: Callable[[], set[str]]) -> None:
    translated()
    for file in (project / "cache" / "ottla" / "compiled").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert translated() == {hot_modules.SHARED, *TWO}
    assert translated() == set()


@pytest.mark.slow
def test_another_clone_uses_what_was_compiled(project: Path, translated: Callable[[], set[str]]) -> None:
    translated()
    shutil.rmtree(project / "build")
    for name in (hot_modules.SHARED, *TWO):
        (project / binary(name)).unlink()
    assert translated() == set()
    assert all((project / binary(name)).exists() for name in TWO)


def test_a_binary_of_a_module_that_is_compiled_no_longer_is_not_imported(tmp_path: Path) -> None:
    hot, other, without = HOT[0], "ottla.protocol.once_compiled", "ottla.protocol.never_compiled"
    for name in (hot, other, without):
        source = tmp_path / f"{name.replace('.', '/')}.py"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.touch()
        if name != without:
            source.with_suffix(EXTENSION_SUFFIXES[0]).touch()

    for is_compiled, expected in ((True, {other}), (False, {other, hot})):
        finder = Sources(tmp_path, is_compiled=is_compiled)
        assert {name for name in (hot, other, without) if finder.find_spec(name, None)} == expected
    spec = finder.find_spec(other, None)
    assert spec is not None
    assert spec.origin == str(tmp_path / "ottla/protocol/once_compiled.py")
    assert finder.find_spec("os", None) is None


@pytest.mark.slow
def test_the_cache_keeps_what_was_used_last_within_its_limit(project: Path, translated: Callable[[], set[str]]) -> None:
    setup, cache = project / "setup.py", project / "cache" / "ottla" / "compiled"
    translated()
    limit = 2 * max((project / binary(name)).stat().st_size for name in TWO)
    with changed(setup, setup.read_bytes().replace(b"CACHED_BYTES = 256 << 20", b"CACHED_BYTES = %d" % limit)):
        assert translated() == {hot_modules.SHARED, *TWO}
        kept = [file.stat().st_size for file in cache.iterdir()]
        assert len(kept) in (1, 2)
        assert sum(kept) <= limit
        assert all((project / binary(name)).exists() for name in TWO)
