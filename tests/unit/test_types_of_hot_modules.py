"""The compiled classes have all that the sources say of them, and the numbers in them are numbers of C."""

import ast
import re
from collections.abc import Iterator
from difflib import unified_diff
from functools import cache
from pathlib import Path

import pytest

from ottla.protocol.hot_modules import HOT
from tests.support.python_in_c import RECORDING, Lister

ROOT = Path(__file__).parents[2]


@cache
def lister() -> Lister:
    """Reads all hot modules once."""
    return Lister()


def slots_of(source: str) -> Iterator[tuple[str, set[str], set[str]]]:
    """The classes that have slots, with their names, and those that `__init__` sets to a number."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for statement in node.body:
            if (
                isinstance(statement, ast.Assign)
                and isinstance(statement.value, ast.Tuple)
                and ast.unparse(statement.targets[0]) == "__slots__"
            ):
                slots = set(ast.literal_eval(statement.value))
                found = re.findall(r"^ {8}self\.(\w+) = -?\d+$", ast.unparse(node), flags=re.MULTILINE)
                yield node.name, slots, slots & set(found)


def attributes_of(name: str, declarations: str) -> dict[str, str] | None:
    """The types of what the `cdef class` of that name declares; None if there is none."""
    found = re.search(rf"^cdef class {name}\b.*:\n((?: .*\n|\n)*)", declarations, flags=re.MULTILINE)
    if found is None:
        return None
    return {each: kind for kind, each in re.findall(r"^    cdef (?:public )?(\w+) (\w+)$", found.group(1), flags=re.MULTILINE)}


@pytest.mark.parametrize("module", HOT)
def test_a_compiled_class_declares_all_of_its_slots_and_its_numbers(module: str) -> None:
    declarations = lister().writer.declarations(module)
    for name, slots, numbers in slots_of((ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")):
        attributes = attributes_of(name, declarations)
        assert attributes is None or attributes.keys() == slots, name
        assert attributes is None or not {each for each in numbers if attributes[each] not in ("int64_t", "double", "object")}, name


def test_most_that_the_hot_modules_hold_has_a_type_of_c() -> None:
    found = "".join(lister().writer.declarations(module) for module in HOT)
    kinds = re.findall(r"^    cdef (?:public )?(\w+) \w+$", found, flags=re.MULTILINE)
    assert len(kinds) > 900
    assert kinds.count("object") < len(kinds) / 3


@pytest.mark.parametrize("module", HOT)
def test_no_function_and_no_module_shares_the_name_of_a_method_that_would_keep_it_out_of_c(module: str) -> None:
    tree = ast.parse((ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8"))
    methods = {each.name for node in tree.body if isinstance(node, ast.ClassDef) for each in node.body if isinstance(each, ast.FunctionDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    imported = {(node.module, each.name) for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names}
    modules = {name for package, name in imported if (ROOT / f"{package}.{name}".replace(".", "/")).with_suffix(".py").exists()}
    assert not methods & (functions | modules)


def test_compiled_modules_leave_to_python_what_is_recorded_and_no_more() -> None:
    recorded, found = RECORDING.read_text(encoding="utf-8").splitlines(), lister().listing().splitlines()
    differences = list(unified_diff(recorded, found, "recorded", "found", lineterm="", n=1))
    remedy = "If C cannot have what is new: python -m tests.support.python_in_c"
    assert not differences, "\n".join([*differences, remedy])
