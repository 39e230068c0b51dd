"""Holds the order of the house: what stands where, how long functions are, what modules say of themselves, what an import costs."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = ("broker", "coordination", "controller", "replication", "storage", "protocol", "config")
PRODUCT = (*FLOORS, "ottla")
"""Links in `ottla` are not followed."""
FOLDERS = (*PRODUCT, "tests", "benchmarks", "declarations", "docs")
TOP_LEVEL = {
    *FOLDERS, "debian", "deploy", "pytest-ottla", ".ci", ".dockerignore", ".gitignore", "Dockerfile", "MANIFEST.in",
    "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "constraints.txt", "pyproject.toml", "setup.py", "start.py",
}  # fmt: skip
FILES_TO_COME = {"CHANGELOG.md", ".github"}
"""May stand at the top, too, and need not."""

MAX_FUNCTION_LINES = 70
"""Lines of a function of the floors, from `def` on; a screen holds no more."""

MAX_MODULE_LINES = 700
"""Lines of a module of the floors."""

MAX_MODULES = 25
"""Modules in a folder of the floors, `__init__` not counted; a reader can tell no more apart."""

EXEMPT_FOLDERS = {"protocol/messages"}
"""Folders with one module for each thing of one kind."""

MAX_TEST_LINES = 500
"""Lines of a module of the tests and benchmarks."""

BANNED_WORDS = {"util", "utils", "helper", "helpers", "common", "misc"}
"""In no name of a module or folder: they say nothing of what is inside."""

HEAVY = {
    "kazoo",
    "rich",
    "prometheus_client",
    "zstandard",
    "zlib_ng",
    "lz4",
    "snappy",
    "cramjam",
    "sqlite3",
    "uvloop",
    "ssl",
    "click",
    "pyspark",
    "multiprocessing",
}
"""What only some brokers need, or only some of the time: imported where it is used."""

NEEDED = {"cli": {"click"}, "client": {"ssl"}}
"""Heavy modules that a package is for."""

STARTS = {
    "cli": "ottla.cli.main",
    "client": "ottla.client.cluster",
    "protocol": "ottla.protocol.schema.message",
    "config": "ottla.config.broker",
}
"""Modules that a process of the package imports first, where that is not the package itself."""

DOCSTRING = re.compile(r'(?:#.*\n)*"""[^"]')
"""The beginning of a module with a docstring, perhaps after lines of comments."""

MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/[\w.-]+|(?<![\w./])/tmp/(?!kafka-logs)[\w.-]+")


def is_repository() -> bool:
    """Whether this is a git checkout; a source archive is none."""
    return (ROOT / ".git").exists()


def tracked_files() -> list[Path]:
    """What git knows. A user of a clone may keep other files in it, such as the plan.json of docs/command-line.md."""
    command = ["git", "ls-files", "--cached"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def modules_of(*folders: str) -> Iterator[Path]:
    """The Python files of our own below the folders; golden data brings the programs that recorded it."""
    for folder in folders:
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if "golden" not in path.parts)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


class Read(NamedTuple):
    """What the syntax trees of the floors show."""

    too_long: set[str]
    """Functions."""
    borrowed: set[str]
    """Functions of other modules that a class makes its methods."""
    imports: set[tuple[str, str]]
    """Names of modules, each with the module that it imports."""


@cache
def read() -> Read:
    """Read each module of the floors once, and keep no tree: together they are large."""
    found = Read(set(), set(), set())
    for path in modules_of(*PRODUCT):
        name, tree = name_of(path), ast.parse(path.read_text(encoding="utf-8"))
        imported = {each.asname or each.name for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names}
        for node in statements_of(tree):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() if (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES:
                    found.too_long.add(f"{name}: {node.name}")
                case ast.ClassDef():
                    found.borrowed.update(f"{name}: {node.name} borrows {each}" for each in _borrowed(node, imported))
                case ast.ImportFrom():
                    found.imports.add((name, node.module or ""))
                case ast.Import():
                    found.imports.update((name, alias.name) for alias in node.names)
    return found


def statements_of(block: ast.AST) -> Iterator[ast.AST]:
    """All statements inside, at every depth. Expressions, most of a tree, hold none."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(block, name, ()):
            yield statement
            yield from statements_of(statement)


def _borrowed(of_class: ast.ClassDef, imported: set[str]) -> Iterator[str]:
    for value in (node.value for node in of_class.body if isinstance(node, ast.Assign)):
        name = value.value if isinstance(value, ast.Attribute) else value
        if isinstance(name, ast.Name) and name.id in imported and ast.unparse(value).islower():
            yield ast.unparse(value)


@pytest.mark.skipif(not is_repository(), reason="no git checkout")
def test_the_top_level_holds_what_it_shall_and_nothing_else() -> None:
    found = {path.relative_to(ROOT).parts[0] for path in tracked_files()}
    assert found - FILES_TO_COME == TOP_LEVEL


def test_a_file_has_one_subject_and_says_which() -> None:
    wrong = []
    for path in modules_of(*PRODUCT, "tests", "benchmarks"):
        text = path.read_text(encoding="utf-8")
        most = MAX_MODULE_LINES if path.relative_to(ROOT).parts[0] in PRODUCT else MAX_TEST_LINES
        if text.count("\n") > most:
            wrong.append(f"{name_of(path)} is too long: split it by subject")
        if BANNED_WORDS & set(re.split(r"[_/.]", name_of(path))):
            wrong.append(f"{name_of(path)}: the name says nothing")
        if text.strip() and not DOCSTRING.match(text):
            wrong.append(f"{name_of(path)} has no docstring")
    assert not wrong


@pytest.mark.slow
def test_a_function_fits_a_screen() -> None:
    assert not read().too_long, "split it by subject"


@pytest.mark.slow
def test_a_class_has_one_file() -> None:
    """No function of another module is made a method by an assignment in the body of a class."""
    assert not read().borrowed


def test_a_folder_has_at_most_25_modules() -> None:
    modules = Counter(path.parent for path in modules_of(*PRODUCT) if path.name != "__init__.py")
    full = {name_of(folder): count for folder, count in modules.items() if count > MAX_MODULES}
    assert not full.keys() - EXEMPT_FOLDERS


def test_every_folder_with_modules_is_a_package() -> None:
    for path in modules_of(*PRODUCT, "tests", "benchmarks"):
        assert (path.parent / "__init__.py").exists(), f"{name_of(path.parent)} has no __init__.py"


@pytest.mark.slow
@pytest.mark.skipif(not is_repository(), reason="no git checkout")
def test_no_file_knows_the_machine_it_was_written_on() -> None:
    for path in tracked_files():
        if "golden" in path.parts or path.stat().st_size > 1_000_000:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found = None if path == Path(__file__) else MACHINE_PATH.search(text)
        assert found is None, f"{name_of(path)}: {found and found.group()}"


def test_no_check_is_switched_off_without_a_reason() -> None:
    for path in modules_of(*PRODUCT, "tests", "benchmarks"):
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if "#" not in line:
                continue
            where = f"{name_of(path)}:{number}"
            assert not re.search(r"#\s*(TODO|FIXME|XXX)\b", line), where
            assert not re.search(r"#\s*noqa\b", line), where
            ignored = re.search(r"#\s*type:\s*ignore(\[[\w, -]+\])?(.*)", line)
            assert ignored is None or len(ignored.group(2).strip(" #")) > 5, f"{where}: why?"


@pytest.mark.slow
@pytest.mark.parametrize("package", [*FLOORS, "cli", "client"])
def test_importing_a_package_loads_nothing_heavy(package: str) -> None:
    start = STARTS.get(package, f"ottla.{package}")
    code = f"import sys, {start}; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    unwanted = {name.partition(".")[0] for name in loaded} & HEAVY - NEEDED.get(package, set())
    assert not unwanted


@pytest.mark.slow
def test_only_the_floors_that_may_do_so_import_their_libraries() -> None:
    allowed = {"kazoo": "controller/store/zookeeper_", "sqlite3": "controller/store/", "click": "ottla/", "rich": "ottla/cli/"}
    assert read().imports
    for path, name in read().imports:
        where = allowed.get(name.partition(".")[0])
        assert where is None or path.startswith(where), f"{path} imports {name}"
