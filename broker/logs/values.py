"""Names the values of a log line after the expressions in the source of the logging module.

A line such as `logger.warning("%s: broker %d does not answer", self.topic_partition, leader_id)` has the values `topic_partition` and
`leader_id`. The module's source is read once, with the first of its lines that is written as JSON. A value without a name, such as a
computed one, is in the text only. Compiled modules bring their source along, so they are read the same way.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from ottla.broker.logs.kafka_names import MODULES

Plain = str | int | float | bool | None

LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_OTHER_NAMES: Final = {
    "index": "partition",
    "group_id": "group",
    "topic_name": "topic",
    "exc": "error",
    "strerror": "error",
    "connection_id": "client",
    "log_dir": "directory",
    "dir": "directory",
}
"""Names of the source -> names in the line, so that one kind of value has one name."""
_DETAILS: Final = frozenset({"name", "value", "hex", "__name__", "join", "strerror", "path"})
"""Attributes and methods that determine the format of a value; they follow the name of the value."""
_TRANSPARENT: Final = frozenset({"str", "repr", "int", "list", "sorted", "type", "map", "max", "min", "round"})
"""Functions whose result is a form of their argument."""


def plain_values(arguments: object) -> tuple[Plain, ...]:
    """The arguments of a log call as values that do not change any more. A mapping has its values in its order."""
    if isinstance(arguments, Mapping):
        arguments = tuple(arguments.values())
    if not isinstance(arguments, tuple):
        return ()
    return tuple(each if isinstance(each, str | int | float | bool | None) else str(each) for each in arguments)


@cache
def names_of(module: str, template: str) -> tuple[str | None, ...]:
    """The names of the values of this line, in the order of its placeholders; None for a value without a name."""
    return _lines_of(module).get(template, ())


@cache
def _lines_of(module: str) -> dict[str, tuple[str | None, ...]]:
    """Template -> names, for each line of a module."""
    source = _source_of(MODULES.get(module, module))
    return {} if source is None else dict(lines_in(source))


def lines_in(source: str) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """(template, names of the values) of each log call in a module's source."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in LEVELS:
            continue
        arguments = node.args[1:] if node.func.attr == "log" else node.args
        if arguments and isinstance(arguments[0], ast.Constant) and isinstance(arguments[0].value, str):
            yield arguments[0].value, tuple(_unique(_name_of(each) for each in arguments[1:]))


def _source_of(module: str) -> str | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    source = origin if origin.suffix == ".py" else origin.with_name(f"{module.rpartition('.')[2]}.py")
    try:
        return source.read_text(encoding="utf-8")
    except OSError:
        return None


def _unique(names: Iterator[str | None]) -> Iterator[str | None]:
    """The names, with a number behind one that was there before."""
    seen: dict[str, int] = {}
    for name in names:
        if name is None:
            yield None
        else:
            seen[name] = count = seen.get(name, 0) + 1
            yield name if count == 1 else f"{name}_{count}"


def _name_of(node: ast.expr) -> str | None:
    """The name of an expression as a value of a log line; None if it has none."""
    name = _raw_name(node)
    return None if name is None else _OTHER_NAMES.get(name, name)


def _raw_name(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name):
            return name.strip("_")
        case ast.Attribute(value=inner, attr=attribute):
            return _raw_name(inner) if attribute in _DETAILS else attribute.strip("_")
        case ast.Call(func=ast.Name(id="len"), args=[inner]):
            counted = _raw_name(inner)
            return None if counted is None else f"{counted}_count"
        case ast.Call(func=ast.Name(id=function), args=[*_, inner]) if function in _TRANSPARENT:
            return _raw_name(inner)
        case ast.Call(func=ast.Attribute(attr="join"), args=[inner]):
            return _raw_name(inner)
        case ast.Call(func=ast.Attribute() as function):
            return _raw_name(function)
        case ast.Call(func=ast.Name(id=function)):
            return function.strip("_")
        case ast.NamedExpr(target=ast.Name(id=name)):
            return name.strip("_")
        case ast.Subscript(value=inner) | ast.IfExp(body=inner) | ast.BinOp(left=inner) | ast.BoolOp(values=[inner, *_]):
            return _raw_name(inner)
        case (
            ast.GeneratorExp(generators=[ast.comprehension(iter=inner), *_]) | ast.ListComp(generators=[ast.comprehension(iter=inner), *_])
        ):
            return _raw_name(inner)
    return None
