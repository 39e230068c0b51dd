"""Describes a field of a message: its type on the wire, its versions, its default.

`ottla.protocol.schema.message` builds the descriptions from the declarations, and `ottla.protocol.schema.codegen` turns them into source.
They have no other users. All of them are immutable once the class has been declared.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

LAST_VERSION: Final = 32767


class Versions(NamedTuple):
    """An inclusive range of versions; empty when `last` < `first`."""

    first: int
    last: int

    def cover(self, version: int) -> bool:
        return self.first <= version <= self.last

    def within(self, other: Versions) -> Versions:
        return Versions(max(self.first, other.first), min(self.last, other.last))


NO_VERSIONS: Final = Versions(1, 0)


class Fixed(NamedTuple):
    """A type of fixed size. `code` is its letter (or count and letter) in the `struct` module."""

    name: str
    code: str
    size: int
    zero: Any


class Variable(NamedTuple):
    """A string, bytes or records: a length and that many bytes."""

    name: str
    zero: Any


class ArrayOf(NamedTuple):
    """A count and that many elements, in memory a list. One of numbers may also be a tuple."""

    element: WireType
    is_tuple: bool = False


class StructOf(NamedTuple):
    """A nested structure. A byte that shows whether it is present precedes a nullable one."""

    cls: type[Any]

    @property
    def fields(self) -> tuple[Field, ...]:
        fields: tuple[Field, ...] = self.cls.SCHEMA.fields
        return fields


WireType = Fixed | Variable | ArrayOf | StructOf


class Field(NamedTuple):
    """One field. `versions` is unlimited unless the declaration limits it; `nullable` are the versions that allow null."""

    name: str
    type: WireType
    versions: Versions
    nullable: Versions
    default: Any
    ignorable: bool
    tag: int | None
    flexible: bool

    @property
    def is_changeable(self) -> bool:
        """Whether values are objects that their owner may change."""
        return isinstance(self.type, StructOf) or (isinstance(self.type, ArrayOf) and not self.type.is_tuple)

    def make_default(self) -> Any:
        """A default that the caller may keep and change: arrays and structures are new objects."""
        if self.default is not None and self.is_changeable:
            return self.type.cls() if isinstance(self.type, StructOf) else []
        return self.default


class Schema(NamedTuple):
    """The description of a declared class. A nested structure takes `versions` and `flexible` from the message that contains it."""

    name: str
    kind: str
    api_key: int | None
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]
