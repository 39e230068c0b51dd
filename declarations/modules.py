"""Reads modules of Python as trees of syntax, and finds the definitions of their names."""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True)
class Imported:
    """A name that comes from another module."""

    module: str
    name: str


@dataclass(frozen=True)
class Assigned:
    """A name that the module itself gives a value."""

    annotation: ast.expr | None
    value: ast.expr | None
    times: int

    @property
    def is_alias(self) -> bool:
        """Whether the name is another name of a type."""
        return self.annotation is not None and ast.unparse(self.annotation) == "TypeAlias"


Definition: TypeAlias = Imported | Assigned | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(eq=False)
class Module:
    """One file, with the definitions at its top level."""

    name: str
    tree: ast.Module
    names: dict[str, Definition] = field(default_factory=dict)
    imported: set[str] = field(default_factory=set)
    """Imported names that exist when the module runs, and not for annotations alone."""


@dataclass(frozen=True)
class Found:
    """A definition, in the module that has it and by its name there."""

    module: Module
    name: str
    what: Definition


@dataclass(frozen=True)
class Declared:
    """What the declarations of a module define that is not compiled."""

    types: frozenset[str]
    functions: dict[str, str]
    """By their names: the C types of what they return."""


class Modules:
    """All modules below a folder, each read when it is asked for."""

    def __init__(self, root: Path, hot: tuple[str, ...]) -> None:
        self._root = root
        self.hot = frozenset(hot)
        self._read: dict[str, Module | None] = {}
        self._declared: dict[str, Declared] = {}

    @property
    def read(self) -> set[str]:
        """The names of the modules that were read."""
        return {name for name, module in self._read.items() if module is not None}

    def get(self, name: str) -> Module | None:
        """The module; None if it is none of these."""
        if name not in self._read:
            path = self.path_of(name)
            self._read[name] = _module(name, path.read_text(encoding="utf-8")) if path.exists() else None
        return self._read[name]

    def hot_module(self, name: str) -> Module:
        """A module that is compiled."""
        module = self.get(name)
        if module is None:
            raise FileNotFoundError(self.path_of(name))
        return module

    def path_of(self, name: str) -> Path:
        """The file of a module."""
        return (self._root / name.replace(".", "/")).with_suffix(".py")

    def has_declarations(self, name: str) -> bool:
        """Whether a module that is not compiled has declarations, which people wrote, for the C code of others."""
        return name not in self.hot and self.path_of(name).with_suffix(".pxd").exists()

    def declared(self, name: str) -> Declared:
        """What those declarations define."""
        if name not in self._declared:
            text = self.path_of(name).with_suffix(".pxd").read_text(encoding="utf-8") if self.has_declarations(name) else ""
            types = re.findall(r"^ctypedef [^\n]* (\w+)$", text, flags=re.MULTILINE)
            functions = re.findall(r"^cdef inline (\([^)]*\)|\w+) (\w+)\(", text, flags=re.MULTILINE)
            aliases_of = {each: kind for kind, each in re.findall(r"^ctypedef (\([^)]*\)) (\w+)$", text, flags=re.MULTILINE)}
            self._declared[name] = Declared(frozenset(types), {each: aliases_of.get(kind, kind) for kind, each in functions})
        return self._declared[name]

    def source_of_type(self, kind: str) -> str:
        """The module whose declarations define a type; empty if none does."""
        return next((name for name in self._declared if kind in self._declared[name].types), "")

    def find(self, module: Module, name: str) -> Found | None:
        """The definition of a name, through all imports. None if the module does not define it."""
        what = module.names.get(name)
        while isinstance(what, Imported):
            other = self.get(what.module)
            if other is None or what.name not in other.names:
                return Found(module, name, what)
            module, name, what = other, what.name, other.names[what.name]
        return Found(module, name, what) if what is not None else None


def _module(name: str, text: str) -> Module:
    module = Module(name, ast.parse(text))
    for statement in module.tree.body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for each in statement.body:
                _define(module, each)
        else:
            module.imported |= _define(module, statement)
    return module


def _define(module: Module, statement: ast.stmt) -> set[str]:
    """Note the names that a statement defines. Returns those that it imports."""
    names = module.names
    if isinstance(statement, ast.ImportFrom) and statement.module:
        found = {alias.asname or alias.name: Imported(statement.module, alias.name) for alias in statement.names}
        names |= found
        return set(found)
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        names[statement.name] = statement
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        names[statement.target.id] = Assigned(statement.annotation, statement.value, 1)
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                before = names.get(target.id)
                names[target.id] = Assigned(None, statement.value, before.times + 1 if isinstance(before, Assigned) else 1)
    return set()
