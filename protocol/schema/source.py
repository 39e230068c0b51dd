"""Collects lines of generated source with their indentation, names and constants; shared by the two generators."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.protocol.schema.fields import ArrayOf, Field, Fixed, StructOf, WireType


class Source:
    """Source under construction, and the namespace in which it will run."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self._lines: list[str] = []
        self._depth = 0
        self._names: dict[str, int] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, hint: str) -> str:
        """A local name that is not yet taken."""
        taken = self._names.get(hint, 0)
        self._names[hint] = taken + 1
        return f"{hint}_{taken}" if taken else hint

    def constant(self, hint: str, value: Any) -> str:
        """The name of `value` in the generated code. Equal hint and value give the same name."""
        known = self.namespace.get(hint)
        if known is None:
            self.namespace[hint] = value
        elif known is not value:
            return self.constant(f"{hint}_", value)
        return hint

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def compiled(title: str, name: str, source: str, namespace: dict[str, Any]) -> Any:
    """The function `name` that the source defines. Debuggers and tracebacks show its lines under the title."""
    filename = f"<{title}>"
    exec(compile(source, filename, "exec"), namespace)
    # The entry has no modification time, so linecache keeps it and looks for no file.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return namespace[name]


def struct_name(codes: str) -> str:
    """A readable constant name for the format of a run of fields."""
    return "".join({"?": "bool"}.get(code, code) for code in codes)


def present_fields(fields: tuple[Field, ...], version: int) -> list[Field]:
    """The fields that a version has outside its tagged section, in wire order."""
    return [field for field in fields if field.tag is None and field.versions.cover(version)]


def tagged_fields_of(fields: tuple[Field, ...], version: int) -> list[Field]:
    """The tagged fields of a version in the order of their tags."""
    return sorted((field for field in fields if field.tag is not None and field.versions.cover(version)), key=lambda field: field.tag or 0)


def min_size(wire_type: WireType, version: int, flexible: bool, nullable: bool = False) -> int:
    """The smallest encoded size of a value, in bytes. A count that was read is multiplied with it before it is trusted."""
    if isinstance(wire_type, Fixed):
        return wire_type.size
    if isinstance(wire_type, StructOf):
        if nullable:
            return 1
        fields = present_fields(wire_type.fields, version)
        size = sum(min_size(field.type, version, flexible and field.flexible, field.nullable.cover(version)) for field in fields)
        return size + (1 if flexible else 0)
    if flexible:
        return 1
    return 2 if not isinstance(wire_type, ArrayOf) and wire_type.name == "string" else 4
