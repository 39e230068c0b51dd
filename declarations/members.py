"""Decides which functions and methods become functions of C."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from declarations.modules import Module, Modules
from declarations.syntax import may_be_c
from declarations.types import NUMBERS, OBJECT, CompiledClass, Types, returned_by


@dataclass(frozen=True)
class Member:
    """A function of C."""

    module: Module
    owner: CompiledClass | None
    node: ast.FunctionDef
    is_hidden: bool
    """Whether Python cannot call it."""


class Members:
    """The functions of C of all compiled modules."""

    def __init__(self, modules: Modules, types: Types) -> None:
        self._modules = modules
        self._types = types
        self._called: set[tuple[str, str]] = set()
        """Functions and methods that compiled code calls where it knows them: the module or the class, and the name."""
        self._readers: set[ast.FunctionDef] = set()
        """Functions that call those whose C code people wrote."""
        self._values: set[str] = set()
        """Names of attributes and of functions that are used without a call."""
        for name in sorted(modules.hot):
            module = modules.hot_module(name)
            self._look(module)
            for owner, function in functions_of(types, module):
                self._follow(module, owner, function)

    def _look(self, module: Module) -> None:
        """Note the names that a module uses without a call."""
        called: set[ast.expr] = set()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call):
                called.add(node.func)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute | ast.Name) and node not in called and isinstance(node.ctx, ast.Load):
                self._values.add(node.attr if isinstance(node, ast.Attribute) else node.id)

    def _follow(self, module: Module, owner: CompiledClass | None, function: ast.FunctionDef) -> None:
        """Note the functions and methods that a function calls."""
        scope = self._types.scope(module, owner, function)
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name) and (found := self._modules.find(module, node.func.id)):
                self._called.add((found.module.name, found.name))
            elif self._types.declared(node, scope):
                self._readers.add(function)
            elif place := self._types.named_in_module(node.func, scope):
                self._called.add((place[0].name, place[1]))
            elif method := self._types.method(node, scope):
                self._called.add((method[0].name, method[1].name))

    def functions(self, module: Module) -> Iterator[Member]:
        """The functions at the top level of a module that become C."""
        methods = self.method_names(module)
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name not in methods and may_be_c(node) and self._pays(module, None, node):
                yield Member(module, None, node, self._is_hidden(node.name))

    def method_names(self, module: Module) -> set[str]:
        """The methods of the classes of a module. In C, they would hide functions of the same name."""
        return {name for each in self._types.classes.values() if each.module is module for name in each.methods}

    def methods(self, owner: CompiledClass) -> Iterator[Member]:
        """The methods of a class that become C."""
        for node in owner.methods.values():
            family = self._family(owner, node.name)
            is_called = any(self._pays(each.module, each, each.methods[node.name]) for each in family)
            if is_called and all(may_be_c(each.methods[node.name]) for each in family):
                yield Member(owner.module, owner, node, self._is_hidden(node.name))

    def _pays(self, module: Module, owner: CompiledClass | None, node: ast.FunctionDef) -> bool:
        """Whether a function is better in C: compiled code calls it, it reads bytes, or it takes or returns numbers."""
        if (owner.name if owner else module.name, node.name) in self._called or node in self._readers:
            return True
        kinds = [*self._types.parameters(module, owner, node).types.values(), self._types.returned(returned_by(module, node))]
        return any(kind in NUMBERS for kind in kinds)

    def _is_hidden(self, name: str) -> bool:
        return name.startswith("_") and name not in self._values

    def _family(self, owner: CompiledClass, name: str) -> list[CompiledClass]:
        """The classes above and below that have a method of the same name."""
        top = self.top(owner, name)
        return [each for each in self._types.classes.values() if name in each.methods and top in each.lines()]

    def top(self, owner: CompiledClass, name: str) -> CompiledClass:
        """The uppermost class that has the method."""
        return [each for each in owner.lines() if name in each.methods][-1]

    def variables(self, member: Member) -> dict[str, str]:
        """The C types of the variables of a function."""
        scope = self._types.scope(member.module, member.owner, member.node)
        parameters = self._types.parameters(member.module, member.owner, member.node).types
        return {name: kind for name, kind in scope.types.items() if name not in parameters and kind != OBJECT}


def functions_of(types: Types, module: Module) -> Iterator[tuple[CompiledClass | None, ast.FunctionDef]]:
    """All functions and methods of a module, with the classes that they belong to."""
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef):
            yield None, node
        elif isinstance(node, ast.ClassDef):
            owner = types.classes.get(node.name)
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    yield owner if owner and owner.node is node else None, each
