"""The C code that Cython writes asks Python for no name that the declarations give it in C."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ottla.protocol.compiled import IS_COMPILED, describe
from ottla.protocol.hot_modules import HOT, sources
from tests.support.python_in_c import Left, Lister

ROOT = Path(__file__).parents[2]
BODY = re.compile(r"^static [^\n]*\b__pyx_f_\w+\(.*\{$", flags=re.MULTILINE)
"""The beginning of a function of C. Those that only Python calls have other names."""
LINE = re.compile(r'^ */\* "ottla/[\w/]+\.py":(\d+)$', flags=re.MULTILINE)
"""A comment in the C code: which line of the source the code below is made of."""
NAME = re.compile(r"\b__pyx_n_u_(\w+?)(?:_\d+)?\b")
"""A name that the code asks Python for, without the underscores that it may begin with."""


@cache
def lister() -> Lister:
    """Reads all hot modules once."""
    return Lister()


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the C code of all compiled modules, as a build writes it; nothing is compiled."""
    root = tmp_path_factory.mktemp("translated")
    made_of = {f"{name.replace('.', '/')}.py" for name in lister().writer.read}
    made_of |= {"setup.py", "pyproject.toml", "README.md", "LICENSE", "ottla/protocol/hot_modules.py", *sources()}
    for name in (*made_of, *(f"declarations/{path.name}" for path in (ROOT / "declarations").glob("*.py"))):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name) if (ROOT / name).exists() else None
    environment = {**os.environ, "OTTLA_PURE_PYTHON": "", "XDG_CACHE_HOME": str(root / "cache"), "CC": "true", "LDSHARED": "true"}
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True)
    (folder,) = (root / "build").glob("cython-*")
    return folder


def asked(text: str, left: Left) -> Iterator[tuple[str, set[str]]]:
    """The functions of C in the code of a module, each with the names that it asks Python for."""
    of_line = {line: name for name, lines in left.lines.items() for line in lines}
    for body in BODY.finditer(text):
        end = text.index("\n}\n", body.end())
        comment = LINE.search(text, text.rindex("/* ", 0, body.start()))
        if comment is not None and comment.start() < end and (name := of_line.get(int(comment[1]))):
            yield name, set(NAME.findall(text, body.end(), end))


def bare(names: set[str]) -> set[str]:
    """Names as they are in C code."""
    return {name.lstrip("_") for name in names}


@pytest.mark.slow
@pytest.mark.timeout(1200)  # half a minute of processor time
@pytest.mark.skipif(not IS_COMPILED, reason=f"the hot path is {describe()} here")
def test_what_the_declarations_give_to_c_is_never_looked_up_in_python(translated: Path) -> None:
    wrong, seen, functions = set(), 0, 0
    for module in HOT:
        left = lister().left(module)
        functions += len(left.lines)
        for name, names in asked((translated / f"{module.replace('.', '/')}.c").read_text(encoding="utf-8"), left):
            seen += 1
            own = {name.rpartition(".")[2]}  # a method looks whether a class of Python has another one
            wrong |= {f"{module}: {name} asks for {each}" for each in names & (bare(left.of_c[name]) - bare(left.of_python[name] | own))}
    assert not wrong
    assert seen > 0.95 * functions


WAITS = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor, ast.AsyncWith)


def waits_in_except(source: str) -> list[int]:
    """Lines in the except blocks of a module where a coroutine or generator waits."""
    handlers = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler))
    return [node.lineno for handler in handlers for node in ast.walk(handler) if isinstance(node, WAITS)]


def test_no_hot_module_waits_in_an_except_block() -> None:
    """In compiled code the functions that are called there refer to the error. A process crashed when its traceback was gone meanwhile."""
    assert waits_in_except("async def f():\n    try:\n        g()\n    except OSError:\n        await h()\n") == [5]
    waiting = {name: waits_in_except((ROOT / f"{name.replace('.', '/')}.py").read_text()) for name in HOT}
    assert {name: lines for name, lines in waiting.items() if lines} == {}
