"""Beside every hot module stand the types of all that its compiled classes hold."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.hot_modules import HOT

ROOT = Path(__file__).parents[2]


def slots_of(source: str) -> Iterator[tuple[str, set[str]]]:
    """The classes that have slots, with their names."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Tuple):
                    continue
                if ast.unparse(statement.targets[0]) == "__slots__":
                    yield node.name, set(ast.literal_eval(statement.value))


def attributes_of(name: str, declarations: str) -> set[str] | None:
    """What the `cdef class` of that name declares; None if there is none."""
    found = re.search(rf"^cdef class {name}\b.*:\n((?: .*\n|\n)*)", declarations, flags=re.MULTILINE)
    if found is None:
        return None
    lines = re.findall(r"^    cdef (?:public |readonly )?(?:const )?[\w.]+(?:\[[^\]]*\])? ([\w, ]+)$", found.group(1), flags=re.MULTILINE)
    return {name.strip() for line in lines for name in line.split(",")}


@pytest.mark.parametrize("module", HOT)
def test_a_compiled_class_declares_all_of_its_slots(module: str) -> None:
    path = ROOT / module.replace(".", "/")
    declarations = path.with_suffix(".pxd").read_text(encoding="utf-8")
    for name, slots in slots_of(path.with_suffix(".py").read_text(encoding="utf-8")):
        attributes = attributes_of(name, declarations)
        assert attributes is None or attributes == slots, name
