"""What README, CONTRIBUTING and the pages under docs/ name exists: files, links, functions, make targets, keys, log messages, offsets."""

import ast
import json
import re
import struct
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from math import prod
from pathlib import Path

import pytest

from ottla.broker.logs.events import EVENTS
from ottla.config.broker_keys import BROKER_KEYS
from ottla.protocol.records.batch import HEADER_SIZE, HEADER_STRUCT, BatchHeader
from tests.suites import SUITES, judge, medium, neighbours, package_test, pure, soak

ROOT = Path(__file__).parents[2]
FLOORS = ("broker", "coordination", "controller", "replication", "storage", "protocol", "config", "ottla")
PACKAGES = (*FLOORS, "tests", "benchmarks")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "README.md"]
GENERATED = {"configuration.md", "protocol-support.md"}
WRITTEN = [page for page in PAGES if page.name not in GENERATED]

NOT_IN_THE_TREE = {
    "server.properties",
    "meta.properties",
    "partition.metadata",
    "table.txt",
    "results.json",
    "ratios.svg",
    "report.json",
    "serve.py",
    "cluster.json",
}
"""Names of files that pages speak of, and that are made when something runs."""

SIZES = {"int8": 1, "int16": 2, "int32": 4, "uint32": 4, "int64": 8}

each_page = pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)


def spans_of(page: Path) -> list[str]:
    """What stands in backticks, in prose and tables."""
    return re.findall(r"`([^`\n]+)`", prose_of(page))


def rows_of(page: Path, section: str = "") -> list[list[str]]:
    """The cells of every table row below the heading `section`, heads and rules left out."""
    text = prose_of(page)
    if section:
        after = re.split(rf"^#+ {re.escape(section)}$", text, maxsplit=1, flags=re.MULTILINE)
        assert len(after) == 2, f"{page.name} has no section {section}"
        text = re.split(r"^#+ ", after[1], maxsplit=1, flags=re.MULTILINE)[0]
    lines = text.splitlines()
    rows = []
    for number, line in enumerate(lines):
        follows = lines[number + 1] if number + 1 < len(lines) else ""
        if line.startswith("|") and not line.startswith("|---") and not follows.startswith("|---"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


@cache
def sources() -> dict[str, str]:
    """Path -> text of every Python file of the floors."""
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for floor in FLOORS for path in (ROOT / floor).rglob("*.py")}


@cache
def definitions_in(path: str) -> frozenset[str]:
    """`function`, `Class`, `Class.method` and `Class.attribute` of a file, module-level constants with them."""
    found = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.add(f"{node.name}.{member.name}")
        for target in [node.target] if isinstance(node, ast.AnnAssign) else node.targets if isinstance(node, ast.Assign) else []:
            if isinstance(target, ast.Name):
                found.add(target.id)
    return frozenset(found)


@cache
def names_in_the_tree() -> frozenset[str]:
    """The names of all files of the repository."""
    folders = [ROOT / package for package in (*PACKAGES, "docs")]
    return frozenset(path.name for folder in folders for path in folder.rglob("*")) | {path.name for path in ROOT.iterdir()}


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if not target.startswith(("http://", "https://")):
            path, _, anchor = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            assert found.exists(), f"{page.name} links to {target}"
            if anchor:
                titles = re.findall(r"^#+ (.+)$", text_of(found), flags=re.MULTILINE)
                assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, target


@each_page
def test_every_file_that_is_named_exists(page: Path) -> None:
    for span in spans_of(page):
        if not re.fullmatch(r"[\w.-]+(/[\w.*-]+)*/?", span):
            continue
        folder, slash, _ = span.partition("/")
        if slash and folder in (*PACKAGES, "docs"):
            assert list(ROOT.glob(span.rstrip("/"))), f"{page.name} names {span}"
        elif re.search(r"\.(py|md|c|java|toml|txt|json|jsonl)$", span) and span not in NOT_IN_THE_TREE:
            beside = (page.parent / span).exists() or (ROOT / span).exists()
            assert beside or Path(span).name in names_in_the_tree(), f"{page.name} names {span}"


def test_the_suites_and_the_makefile_run_tests_that_exist() -> None:
    texts = text_of(ROOT / "Makefile"), text_of(ROOT / "tests" / "suites.py")
    named = [name for text in texts for name in re.findall(r"\btests/[\w/]+(?:\.py)?", text) if name.endswith(".py") or "/" in name]
    steps = [step for suite in (soak, judge, medium, pure, neighbours, package_test) for step in suite()]
    named += [each for step in steps for each in step.arguments if each.startswith("tests/")]
    whole = [name for name in named if not name.endswith(("_", "/"))]
    assert len(whole) > 20
    assert [name for name in whole if not (ROOT / name).exists()] == []


def test_make_knows_every_suite() -> None:
    (names,) = re.findall(r"^SUITES := (.*)$", text_of(ROOT / "Makefile"), flags=re.MULTILINE)
    assert names.split() == list(SUITES)


@each_page
def test_every_make_target_and_module_that_is_named_exists(page: Path) -> None:
    targets = [*SUITES, *re.findall(r"^([a-z][\w-]*):", text_of(ROOT / "Makefile"), flags=re.MULTILINE)]
    for named in re.findall(r"(?:^|`)make ((?:[a-z][\w-]* ?)+)", text_of(page), flags=re.MULTILINE):
        for target in named.split():
            assert target in targets, f"{page.name}: make {target}"
    for module in re.findall(r"python -m ([\w.]+)", text_of(page)):
        path = ROOT / module.replace(".", "/")
        is_there = path.with_suffix(".py").exists() or (path / "__main__.py").exists()
        assert module == "pytest" or is_there, f"{page.name}: python -m {module}"


def test_every_page_that_the_code_refers_to_exists() -> None:
    for path, text in sources().items():
        for named in re.findall(r"\bdocs/[\w-]+\.md", text):
            assert (ROOT / named).exists(), f"{path} refers to {named}"
        assert "DESIGN.md" not in text, path


def test_the_walkthrough_names_functions_where_they_are() -> None:
    rows = rows_of(ROOT / "docs" / "walkthrough.md")
    assert len(rows) > 20
    for file, functions, _ in rows:
        for function in functions.replace("`", "").split(", "):
            assert function in definitions_in(file.strip("`")), f"{function} is not in {file}"


@pytest.mark.slow
def test_what_the_walkthrough_tells_in_prose_exists() -> None:
    everything = frozenset().union(*(definitions_in(path) for path in sources()))
    for span in spans_of(ROOT / "docs" / "walkthrough.md"):
        if re.fullmatch(r"[A-Z]\w+\.\w+", span):
            name, _, member = span.partition(".")
            inherited = name in everything and any(each.endswith(f".{member}") for each in everything)
            assert span in everything or inherited, span


def test_the_table_of_limits_names_keys_and_constants() -> None:
    for _, bound, files in rows_of(ROOT / "docs" / "design.md", "Limits"):
        constants = frozenset().union(*(definitions_in(file) for file in re.findall(r"`([^`]+)`", files)))
        for name in re.findall(r"`([^`]+)`", bound):
            assert name in BROKER_KEYS or name in constants, name


def test_the_numbers_in_the_table_of_limits_are_those_of_the_constants() -> None:
    compared = 0
    for _, bound, files in rows_of(ROOT / "docs" / "design.md", "Limits"):
        values = {name: value for file in re.findall(r"`([^`]+)`", files) for name, value in numbers_in(file).items()}
        for number, unit, names in re.findall(r"([\d,]+) ?(MiB)?[^()`;\d]*\(((?:`\w+`(?:, )?)+)\)", bound):
            said = int(number.replace(",", "")) * (1024 * 1024 if unit else 1)
            for name in re.findall(r"\w+", names):
                assert values[name] == said, name
                compared += 1
    assert compared >= 15


def numbers_in(path: str) -> dict[str, float]:
    """The module-level constants of a file that are numbers, or products of numbers."""
    found = {}
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and node.value is not None and re.fullmatch(r"[\d_. *]+", ast.unparse(node.value)):
            found[target.id] = prod(float(factor) for factor in ast.unparse(node.value).split("*"))
    return found


def test_the_keys_in_the_readme_have_the_defaults_that_it_says() -> None:
    rows = rows_of(ROOT / "docs" / "first-steps.md", "Configuration")
    assert len(rows) >= 12
    for name, default, _ in rows:
        key = BROKER_KEYS[name.strip("`")]
        value = key.render(key.default_for(standalone=True))
        assert default == ("none" if value is None else f"`{value}`"), name


def test_the_log_messages_that_operators_are_told_about_are_in_the_code() -> None:
    everything = " ".join(re.sub(r'"\s*\n\s*f?"', "", text) for text in sources().values())
    for message, event, _ in rows_of(ROOT / "docs" / "operations.md", "What the log says"):
        fragments = [fragment.strip() for fragment in re.split(r"`[^`]*` ?|\.\.\.", message.replace("`", ""))]
        for fragment in fragments:
            assert fragment in everything, message
        assert [part.strip() for part in EVENTS[event.strip("`")]] == fragments, message


def test_every_event_id_of_the_log_is_on_the_page() -> None:
    rows = rows_of(ROOT / "docs" / "operations.md", "What the log says")
    assert [event.strip("`") for _, event, _ in rows] == list(EVENTS)


def test_the_header_of_a_batch_stands_where_the_page_says() -> None:
    rows = rows_of(ROOT / "docs" / "formats.md", ".log")
    fields = [re.sub(r"(?<!^)(?=[A-Z])", "_", row[1]).lower() for row in rows]
    assert fields == list(BatchHeader._fields)
    assert struct.calcsize(HEADER_STRUCT.format) == HEADER_SIZE
    assert end_of(rows) == HEADER_SIZE


def test_the_snapshot_of_producers_stands_where_the_page_says() -> None:
    rows = rows_of(ROOT / "docs" / "formats.md", ".snapshot")
    assert end_of(rows[:3]) == 10
    assert end_of(rows[4:]) == 46


def end_of(rows: list[list[str]]) -> int:
    """Where the last field of a table `at | field | type` ends, each beginning where the one before it ends."""
    at = 0
    for said, field, kind, *_ in rows:
        assert int(said) == at, field
        at += SIZES[re.split(r"[ ,]", kind)[0]]
    return at


def test_the_golden_data_has_what_contributing_says() -> None:
    assert json.loads(text_of(ROOT / "tests" / "golden" / "metrics.json"))["all_names"]
    assert (ROOT / "tests" / "golden" / "wire").is_dir()


def test_the_command_for_the_example_with_spark_installs_what_that_and_the_pipeline_import() -> None:
    asked = re.search(r"pip install .*'\.\[spark\]'(.*)", text_of(ROOT / "docs" / "first-steps.md"))
    assert asked
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["spark"], *asked[1].split()]
    installed = {re.split(r"[<>=\[]", one)[0].replace("-", "_") for one in wanted} | {"py4j"}  # which PySpark brings
    files = [*(ROOT / "benchmarks" / "examples").glob("*.py"), *(ROOT / "ottla" / "validate").glob("*.py")]
    imported = {name.partition(".")[0] for file in files for name in imports_of(file)}
    assert imported - set(sys.stdlib_module_names) - set(PACKAGES) <= installed


def test_the_page_of_the_benchmarks_names_all_of_them() -> None:
    named = set(re.findall(r"[`/.](\w+)(?:\.py)?`", text_of(ROOT / "benchmarks" / "README.md")))
    for file in (ROOT / "benchmarks").glob("*.py"):
        assert file.stem in named or file.stem == "__init__", file.name


def test_the_readme_shows_the_recorded_benchmark() -> None:
    """The rows that the page of recorded benchmarks chose, with the figures, the arguments, the commit and the processor of the result."""
    folder = ROOT / "docs" / "benchmarks"
    readme = text_of(ROOT / "README.md")
    recorded = {tuple(row[at : at + 3]) for row in rows_of(folder / "result" / "README.md") for at in range(len(row) - 2)}
    shown = [row for row in rows_of(ROOT / "README.md") if len(row) == 4 and row[3].endswith("×")]
    for work, reference, ottla, ratio in shown:
        assert (reference.split()[0], ottla.split()[0], ratio) in recorded, work
    assert [row[0] for row in shown] == [row[0] for row in rows_of(folder / "README.md") if len(row) == 3]
    machine = json.loads(text_of(folder / "result" / "results.json"))["machine"]
    for fact in (machine["command"].partition("benchmarks.bench ")[2], f"at commit {machine['commit']}", machine["cpu"]):
        assert fact in readme, fact


def imports_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
