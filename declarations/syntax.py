"""Reads single nodes of trees of syntax."""

import ast
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from declarations.modules import Assigned, Module


def slots_of(module: Module, node: ast.ClassDef) -> tuple[str, ...] | None:
    """The slots of a class; None if it has none."""
    for statement in node.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__slots__":
            value: ast.expr | None = statement.value
            if isinstance(value, ast.Name) and isinstance(found := module.names.get(value.id), Assigned):
                value = found.value
            return tuple(ast.literal_eval(value)) if value is not None else None
    return None


def attribute_of_self(target: ast.expr) -> str:
    """The name of an attribute of the object itself; empty if it is something else."""
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        return target.attr
    return ""


def members_of(annotation: ast.expr) -> list[ast.expr]:
    """The members of a union."""
    if isinstance(annotation, ast.BinOp):
        return [*members_of(annotation.left), *members_of(annotation.right)]
    return [annotation]


def is_none(annotation: ast.expr | None) -> bool:
    """Whether an annotation is None itself."""
    return isinstance(annotation, ast.Constant) and annotation.value is None


def is_final(annotation: ast.expr) -> bool:
    """Whether an annotation says only that the value stays."""
    return isinstance(annotation, ast.Name) and annotation.id == "Final"


def assigned(node: ast.stmt) -> list[tuple[ast.expr, ast.expr | None]]:
    """What a statement gives a value: the targets and the values."""
    if isinstance(node, ast.Assign):
        return [(target, node.value) for target in node.targets]
    if isinstance(node, ast.AnnAssign):
        return [(node.target, node.value)]
    if isinstance(node, ast.With):
        return [(each.optional_vars, None) for each in node.items if each.optional_vars is not None]
    return []


def statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    """The statements of a function in the order of its text."""
    found = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function]
    yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))


def may_be_c(node: ast.FunctionDef) -> bool:
    """Whether a function of C can do what this one does: it has no closure, no keywords, no decorator and no super()."""
    arguments = node.args
    if (
        node.name.startswith("__")
        or arguments.kwonlyargs
        or arguments.vararg
        or arguments.kwarg
        or arguments.posonlyargs
        or node.decorator_list
    ):
        return False
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and each is not node:
            return False
        if isinstance(each, ast.Lambda | ast.GeneratorExp | ast.Yield | ast.YieldFrom | ast.Await):
            return False
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "super":
            return False
    return True


Place: TypeAlias = tuple[int, int]
"""A line, from 1 on, and a byte of it."""


def annotations_in(text: str, tree: ast.Module) -> Iterator[tuple[Place, Place]]:
    """The annotations of functions, but those in brackets, and the imports for annotations alone. Each from its beginning to its end."""
    lines = text.encode().splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            for each in (*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg):
                if each is not None and each.annotation is not None:
                    yield (each.lineno, each.col_offset + len(each.arg.encode())), _end(each)
            if node.returns is not None and (at := lines[node.returns.lineno - 1].rfind(b"->", 0, node.returns.col_offset)) >= 0:
                yield (node.returns.lineno, at), _end(node.returns)
    for statement in tree.body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            yield (statement.lineno, 0), _end(statement)


def _end(node: ast.expr | ast.stmt | ast.arg) -> Place:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def without(text: str, spans: Iterable[tuple[Place, Place]]) -> str:
    """The text without these parts. Each line keeps its number."""
    lines = text.encode().splitlines()
    for (line, begin), (last, end) in sorted(spans, reverse=True):
        rest = lines[last - 1][end:]
        lines[line - 1 : last] = [lines[line - 1][:begin], *(b"" for _ in range(line, last))]
        lines[last - 1] += rest
    return b"".join(line + b"\n" for line in lines).decode()
