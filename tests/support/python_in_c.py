"""Lists what compiled modules leave to Python: `python -m tests.support.python_in_c` records it anew.

A line of the list is a name that is an object of Python in C, or that C code looks up in Python. A type that is not found any more, or a
call that becomes one of Python, makes a broker slow and nothing else. In this list it is a new name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from declarations.members import functions_of
from declarations.modules import Assigned, Module
from declarations.types import EXACT, OBJECT, CompiledClass, Scope
from declarations.writer import Writer
from ottla.protocol.hot_modules import DECLARATIONS, HOT

ROOT = Path(__file__).parents[2]
RECORDING = Path(__file__).parents[1] / "recorded" / "python-in-c.txt"
TYPE = r"\([^)]*\)|\w+"
CLASS = re.compile(r"^cdef class (\w+).*:$")
ATTRIBUTE = re.compile(rf"^    cdef (?:public )?({TYPE}) (\w+)$")
CONSTANT = re.compile(rf"^cdef (?!class )({TYPE}) (\w+)$")
FUNCTION = re.compile(rf"^(?:    )?c(?:p?)def ({TYPE}) (\w+)\((.*)\)$")
LOCALS = re.compile(r"^ *@cython\.locals\((.*)\)$")
IMPORT = re.compile(r"^from (\S+) cimport (\w+)(?: as (\w+))?$")


@dataclass
class InC:
    """The declarations of one module, read from their text."""

    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    """By class, the types of its attributes."""
    functions: dict[str, dict[str, str]] = field(default_factory=dict)
    """By function or `Class.method`, the types of its parameters and variables."""
    constants: set[str] = field(default_factory=set)
    imported: dict[str, str] = field(default_factory=dict)
    """The names of C that come from other modules, each with its name in full."""


def read(declarations: str) -> InC:
    """The declarations of a module."""
    found, owner, variables = InC(), "", ""
    for line in declarations.splitlines():
        if match := IMPORT.match(line):
            found.imported[match[3] or match[2]] = f"{match[1]}.{match[2]}"
        elif match := CLASS.match(line):
            owner = match[1]
            found.attributes[owner] = {}
        elif match := FUNCTION.match(line):
            name = f"{owner}.{match[2]}" if line.startswith(" ") else match[2]
            parameters = [each.removesuffix("=*").rpartition(" ") for each in match[3].split(", ")]
            known = [each.partition("=") for each in re.split(r", (?=\w+=)", variables) if each]
            found.functions[name] = {each: kind for kind, _, each in parameters if kind} | {each: kind for each, _, kind in known}
            variables = ""
        elif match := LOCALS.match(line):
            variables = match[1]
        elif match := ATTRIBUTE.match(line):
            found.attributes[owner][match[2]] = match[1]
        elif match := CONSTANT.match(line):
            found.constants.add(match[2])
    return found


@dataclass
class Left:
    """The parts of a module that stay Python."""

    functions: list[str] = field(default_factory=list)
    """Functions and methods that are none of C."""
    constants: list[str] = field(default_factory=list)
    objects: dict[str, list[str]] = field(default_factory=dict)
    """By class or function of C: attributes, or parameters and variables, that are objects."""
    looked_up: dict[str, set[str]] = field(default_factory=dict)
    """By function of C: names of compiled attributes, methods and functions that its code asks Python for."""
    of_c: dict[str, set[str]] = field(default_factory=dict)
    """By function of C: names that its code reads or calls in C,"""
    of_python: dict[str, set[str]] = field(default_factory=dict)
    """and names that it may ask Python for."""
    lines: dict[str, range] = field(default_factory=dict)
    """The lines of each function of C."""


class Lister:
    """Finds what is left to Python in each module that is compiled."""

    def __init__(self) -> None:
        self.writer = Writer(ROOT, HOT)
        self._modules, self._types = self.writer.modules, self.writer.types
        self.in_c = {name: read(self.writer.declarations(name)) for name in HOT}
        found = self.in_c.values()
        written = [self._modules.declared(file.removesuffix(".pxd").replace("/", ".")).functions for file in DECLARATIONS]
        names = [*(each.functions for each in found), *(attributes for each in found for attributes in each.attributes.values()), *written]
        self.names = {name.rpartition(".")[2] for each in names for name in each}
        """Of all functions, methods and attributes of C."""

    def listing(self) -> str:
        """The text of the list, a paragraph for each module."""
        return "\n".join(_paragraph(name, self.left(name)) for name in HOT)

    def left(self, name: str) -> Left:
        """The parts of the module of that name that stay Python."""
        module, found, left = self._modules.hot_module(name), self.in_c[name], Left()
        for owner, attributes in found.attributes.items():
            left.objects[owner] = sorted(each for each, kind in attributes.items() if kind == OBJECT)
        left.functions = [each for each in _all_functions(module) if each not in found.functions]
        for owner_class, function in functions_of(self._types, module):
            each = f"{owner_class.name}.{function.name}" if owner_class else function.name
            if each in found.functions:
                self._function(module, owner_class, function, each, left)
        used = {node.id for node in ast.walk(module.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        left.constants = sorted(each for each in used - found.constants if self._is_constant(module, each))
        return left

    def _is_constant(self, module: Module, name: str) -> bool:
        found = self._modules.find(module, name)
        return name.isupper() and found is not None and isinstance(found.what, Assigned)

    def _function(self, module: Module, owner: CompiledClass | None, function: ast.FunctionDef, name: str, left: Left) -> None:
        scope, known = self._types.scope(module, owner, function), self.in_c[module.name].functions[name]
        left.objects[name] = sorted(each for each in scope.types if known.get(each, OBJECT) == OBJECT and each != "self")
        left.lines[name] = range(function.lineno, (function.end_lineno or 0) + 1)
        uses = list(self._uses(function, scope))
        left.looked_up[name] = {each for each, is_c in uses if not is_c} & self.names
        left.of_c[name] = {each for each, is_c in uses if is_c}
        left.of_python[name] = {each for each, is_c in uses if not is_c}

    def _uses(self, function: ast.FunctionDef, scope: Scope) -> Iterator[tuple[str, bool]]:
        """The names that a function reads, calls or sets, and whether its code does that in C."""
        called = {node.func for node in ast.walk(function) if isinstance(node, ast.Call)}
        for node in ast.walk(function):
            match node:
                case ast.Name(id=name) if name not in scope.types:
                    yield name, node in called and self._is_function_of_c(scope.module, name)
                case ast.Attribute(value=value, attr=name) if self._types.inferred(value, scope) not in EXACT:
                    yield name, self._is_c(node, scope, is_called=node in called)
                case ast.keyword(arg=str(name)):
                    yield name, False

    def _is_function_of_c(self, module: Module, name: str) -> bool:
        found = self._modules.find(module, name)
        if found is None or not isinstance(found.what, ast.FunctionDef) or found.module.name not in self.in_c:
            return found is None  # Python's own
        if found.name not in self.in_c[found.module.name].functions:
            return False
        return found.module is module or self.in_c[module.name].imported.get(name) == f"{found.module.name}.{found.name}"

    def _is_c(self, node: ast.Attribute, scope: Scope, *, is_called: bool) -> bool:
        """Whether C code reads or calls this without Python."""
        if place := self._types.named_in_module(node, scope):
            assert isinstance(node.value, ast.Name)
            known = self.in_c[scope.module.name].imported.get(node.value.id) == place[0].name
            functions = (
                self.in_c[place[0].name].functions if place[0].name in self.in_c else self._modules.declared(place[0].name).functions
            )
            return known and is_called and place[1] in functions
        if not self._is_known(node.value, scope):
            return False
        owner = self._types.classes.get(self._types.inferred(node.value, scope))
        for each in owner.lines() if owner else ():
            found = self.in_c[each.module.name]
            if node.attr in found.attributes.get(each.name, {}):
                return True
            if f"{each.name}.{node.attr}" in found.functions:
                return is_called
        return False

    def _is_known(self, value: ast.expr, scope: Scope) -> bool:
        """Whether Cython sees the type of an expression, too: elements of containers are objects to it until they are in a variable."""
        match value:
            case ast.Name() | ast.NamedExpr():
                return True
            case ast.Attribute():
                return self._is_c(value, scope, is_called=False)
            case ast.Call(func=ast.Name(id=name)):
                found = self._modules.find(scope.module, name)
                return found is not None and (isinstance(found.what, ast.ClassDef) or self._is_function_of_c(scope.module, name))
            case ast.Call(func=ast.Attribute() as called):
                return self._is_c(called, scope, is_called=True)
        return False


def _all_functions(module: Module) -> Iterator[str]:
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def _paragraph(name: str, left: Left) -> str:
    lines = [name]
    lines += [f"    {each}: {', '.join(names)}" for each, names in left.objects.items() if names and each not in left.looked_up]
    lines += [f"    constant {each}" for each in left.constants]
    lines += [f"    def {each}" for each in left.functions]
    for each, names in left.looked_up.items():
        parts = [", ".join(left.objects[each]), f"looks up {', '.join(sorted(names))}" if names else ""]
        if any(parts):
            lines.append(f"    {each}(): {'; '.join(filter(None, parts))}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the list."""
    RECORDING.write_text(Lister().listing(), encoding="utf-8")


if __name__ == "__main__":
    main()
