"""Generates the source of encoders.

An encoder appends pieces to `w` and joins them at the end. Fields of fixed size are packed together with the one-byte length, or the empty
tagged section, that follows them. A longer length or a filled section takes the other branch.

An encoder in steps is a generator: it yields after every element of an array, joins its pieces from time to time, and returns parts.
It takes the encoding of a SharedStruct from the object, or makes it there with an encoder of the structure.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ottla.protocol.schema import wire
from ottla.protocol.schema.fields import ArrayOf, Field, Fixed, StructOf, Variable, WireType
from ottla.protocol.schema.shared import SharedEncoding
from ottla.protocol.schema.source import Source, compiled, present_fields, struct_name, tagged_fields_of

if TYPE_CHECKING:
    from ottla.protocol.schema.message import Message, Struct


_JOINED_PIECES = 250
"""Pieces that an encoder in steps joins at once. Names of 32 KiB make that 8 MB, which takes 5 ms."""

_SEPARATE_BYTES = 1024
"""Smallest encoding of a shared element that is a part of its own, bytes: longer ones are in memory once, not once for each message."""


def encoder_source(cls: type[Message], version: int, *, in_parts: bool, in_steps: bool) -> tuple[str, dict[str, Any]]:
    """The source of `encode(m)`, and the namespace in which it runs. In parts, every value of type Records is a separate part."""
    return _EncoderSource(cls, version, cls.SCHEMA.flexible.cover(version), in_parts, in_steps).generate()


class _Packers(dict[int, Any]):
    """Count -> `pack` for an array of that length; only short ones are kept."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> Any:
        pack = struct.Struct(f">{count}{self._code}").pack
        if count <= 64:
            self[count] = pack
        return pack


_PACKERS = {code: _Packers(code) for code in "?bhHiIqd"}


class _EncoderSource:
    def __init__(
        self, cls: type[Struct], version: int, flexible: bool, in_parts: bool, in_steps: bool, *, is_element: bool = False
    ) -> None:
        """`is_element`: the encoder is for an element of messages of this version, not for a message."""
        self._cls = cls
        self._version = version
        self._flexible = flexible
        self._is_element = is_element
        self._in_parts = in_parts
        self._in_steps = in_steps
        self._source = Source()
        self._run: list[tuple[str, str]] = []  # struct code and expression of values not yet written
        self._append = "a"

    def generate(self) -> tuple[str, dict[str, Any]]:
        source = self._source
        source.constant("StructError", struct.error)
        source.constant("BYTE", tuple(bytes([value]) for value in range(128)))
        source.constant("join", b"".join)
        for named in (wire.InvalidValue, wire.UnsupportedField, wire.uvarint, wire.compact_string_length, wire.tagged_fields):
            source.constant(named.__name__, named)
        for reserved in ("m", "w", "a", "n", "s", "parts", "error", "kept", "encoded"):
            source.name(reserved)
        with source.block("def encode(m):"):
            if self._in_parts:
                source.line("parts = []")
            source.line("w = []")
            source.line("a = w.append")
            with source.block("try:"):
                self._struct(self._cls, "m")
                if self._in_steps and not self._is_element:
                    source.line("yield")
                if self._in_parts:
                    self._end_part()
                    source.line("return parts")
                else:
                    source.line("return join(w)")
                if self._is_element and self._in_steps:
                    source.line("yield")  # never reached; it makes a generator of an encoder without arrays
            with source.block("except (StructError, AttributeError, TypeError, OverflowError, UnicodeEncodeError) as error:"):
                source.line(f"raise InvalidValue('{self._cls.__name__} version {self._version}: %s' % error) from error")
        return source.text(), source.namespace

    def _struct(self, cls: type[Struct], var: str) -> None:
        fields = cls.SCHEMA.fields
        for field in fields:
            if not field.versions.cover(self._version) and not field.ignorable:
                with self._source.block(f"if {self._differs(field, f'{var}.{field.name}')}:"):
                    self._source.line(f"raise UnsupportedField('{cls.__name__}.{field.name} does not exist in version {self._version}')")
        for field in present_fields(fields, self._version):
            self._field(field, f"{var}.{field.name}", self._flexible and field.flexible)
        if self._flexible:
            self._tagged_section(var, tagged_fields_of(fields, self._version))
        self._flush()

    def _differs(self, field: Field, value: str) -> str:
        """A condition: the value of the field is not its default."""
        if isinstance(field.type, StructOf):
            if field.default is None:
                return f"{value} is not None"
            if field.nullable.cover(self._version):
                return f"{value} != {self._source.constant(f'default_{field.name}', field.make_default())}"
            inner = [self._differs(inner, f"{value}.{inner.name}") for inner in field.type.fields]
            return " or ".join([*inner, f"{value}.unknown_tagged_fields"])
        if field.default is None:
            return f"{value} is not None"
        if not field.default and not (isinstance(field.type, Fixed) and field.type.code == "16s"):
            # Zero, false or empty; null is another value than empty.
            return f"{value} or {value} is None" if not isinstance(field.type, Fixed) else value
        return f"{value} != {field.default!r}"

    def _field(self, field: Field, value: str, flexible: bool) -> None:
        nullable = field.nullable.cover(self._version)
        if isinstance(field.type, StructOf) and nullable:
            self._nullable_struct(field.type, value, field.tag is not None, field.name)
        else:
            self._value(field.type, value, nullable, flexible, field.name)

    def _value(self, wire_type: WireType, value: str, nullable: bool, flexible: bool, name: str) -> None:
        match wire_type:
            case Fixed():
                self._run.append((wire_type.code, value))
            case Variable():
                self._variable(wire_type, value, nullable, flexible)
            case ArrayOf():
                self._array(wire_type.element, value, nullable, flexible, name)
            case StructOf():
                self._struct(wire_type.cls, value)

    def _pack(self, run: list[tuple[str, str]]) -> None:
        """Write a run of fixed-size values with one call."""
        codes = "".join(code for code, _ in run)
        if not codes:
            return
        values = ", ".join(value for code, value in run if code != "x")
        if codes.strip("x") == "":
            self._source.line(f"{self._append}({bytes(len(codes))!r})")
        elif codes == "B":
            self._source.line(f"{self._append}(BYTE[{values}])")
        else:
            pack = self._source.constant(f"pack_{struct_name(codes)}", _packer(codes))
            self._source.line(f"{self._append}({pack}({values}))")

    def _flush(self) -> None:
        run, self._run = self._run, []
        self._pack(run)

    def _length(self, code: str, flexible: bool, long_length: str = "uvarint") -> None:
        """Write `n` as a length, after the run before it."""
        run, self._run = self._run, []
        if not flexible:
            self._pack([*run, (code, "n")])
            return
        with self._source.block("if n < 128:"):
            self._pack([*run, ("B", "n")])
        with self._source.block("else:"):
            self._pack(run)
            self._source.line(f"{self._append}({long_length}(n))")

    def _variable(self, wire_type: Variable, value: str, nullable: bool, flexible: bool) -> None:
        source = self._source
        is_string = wire_type.name == "string"
        encoded = f"{value}.encode()" if is_string else value
        count = "len(s) + 1" if flexible else "len(s)"
        if nullable:
            source.line(f"s = {value}")
            with source.block("if s is None:"):
                source.line(f"n = {0 if flexible else -1}")
                source.line('s = b""')
            with source.block("else:"):
                if is_string:
                    source.line("s = s.encode()")
                source.line(f"n = {count}")
        else:
            source.line(f"s = {encoded}")
            source.line(f"n = {count}")
        self._length("h" if is_string else "i", flexible, "compact_string_length" if is_string else "uvarint")
        if wire_type.name == "records" and self._in_parts:
            with source.block("if s:"):
                self._end_part()
                source.line("parts.append(s)")
        else:
            source.line(f"{self._append}(s)")

    def _array(self, element: WireType, value: str, nullable: bool, flexible: bool, name: str) -> None:
        source = self._source
        items = source.name(f"{name}_items")
        source.line(f"{items} = {value}")
        count = f"len({items}) + 1" if flexible else f"len({items})"
        if nullable:
            with source.block(f"if {items} is None:"):
                source.line(f"n = {0 if flexible else -1}")
                source.line(f"{items} = ()")
            with source.block("else:"):
                source.line(f"n = {count}")
        else:
            source.line(f"n = {count}")
        self._length("i", flexible)
        if isinstance(element, Fixed) and element.code != "16s":
            packers = source.constant(f"arrays_of_{element.name}", _PACKERS[element.code])
            with source.block(f"if {items}:"):
                source.line(f"{self._append}({packers}[len({items})](*{items}))")
            return
        item = source.name(f"{name}_item")
        with source.block(f"for {item} in {items}:"):
            is_whole_step = True
            if isinstance(element, StructOf) and element.cls.IS_SHARED and self._in_steps:
                is_whole_step = self._shared(element.cls, item)
            elif isinstance(element, StructOf):
                self._struct(element.cls, item)
            else:
                self._value(element, item, False, flexible, name)
                self._flush()
            if self._in_steps:
                with source.block(f"if len(w) > {_JOINED_PIECES}:"):
                    source.line("parts.append(join(w))")
                    source.line("w.clear()")
                    if not is_whole_step:
                        source.line("yield")
                if is_whole_step:
                    source.line("yield")

    def _shared(self, cls: type[Struct], item: str) -> bool:
        """Append the encoding that the object keeps. If it is not complete, begin or continue it.

        An element without arrays of structures is encoded at once. Returns whether appending a complete encoding takes as long as a step.
        """
        source = self._source
        has_steps = any(isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructOf) for field in cls.SCHEMA.fields)
        element = _EncoderSource(cls, self._version, self._flexible, in_parts=has_steps, in_steps=has_steps, is_element=True)
        encode = compiled(f"{cls.__name__} v{self._version} encode_element", "encode", *element.generate())
        made = f"{source.constant(f'encode_{cls.__name__}', encode)}({item})"
        if has_steps:
            made = f"{source.constant('SharedEncoding', SharedEncoding)}({made})"
        with source.block(f"if {item}.encoding_version != {self._version}:"):
            source.line(f"{item}.encoding = {made}")
            source.line(f"{item}.encoding_version = {self._version}")
            if not has_steps:
                source.line("yield")
        if not has_steps:
            source.line(f"{self._append}({item}.encoding)")
            return False
        source.line(f"kept = {item}.encoding")
        with source.block("while kept.encoded is None:"), source.block("if kept.advance():"):
            source.line("yield")
        source.line("encoded = kept.encoded")
        if self._append != "a":  # inside a tagged field, whose length is to be known
            source.line(f"{self._append}(encoded)")
            return True
        with source.block(f"if len(encoded) < {_SEPARATE_BYTES}:"):
            source.line("a(encoded)")
        with source.block("else:"):
            self._end_part()
            source.line("parts.append(encoded)")
        return True

    def _end_part(self) -> None:
        """The pieces so far become a part."""
        with self._source.block("if w:"):
            self._source.line("parts.append(join(w))")
            self._source.line("w.clear()")

    def _nullable_struct(self, wire_type: StructOf, value: str, tagged: bool, name: str) -> None:
        """A byte before the structure says whether it is present. -1 stands for null; in a tagged field 0 does."""
        source = self._source
        null = b"\x00" if tagged else b"\xff"
        self._flush()
        item = source.name(f"{name}_item")
        source.line(f"{item} = {value}")
        with source.block(f"if {item} is None:"):
            source.line(f"{self._append}({null!r})")
        with source.block("else:"):
            self._run.append(("b", "1"))
            self._struct(wire_type.cls, item)

    def _tagged_section(self, var: str, tagged: list[Field]) -> None:
        source = self._source
        run, self._run = self._run, []
        if not tagged:
            with source.block(f"if not {var}.unknown_tagged_fields:"):
                self._pack([*run, ("x", "")])
            with source.block("else:"):
                self._pack(run)
                source.line(f"{self._append}(tagged_fields([], {var}.unknown_tagged_fields))")
            return
        self._pack(run)
        section = source.name("tagged")
        source.line(f"{section} = []")
        for field in tagged:
            value = f"{var}.{field.name}"
            with source.block(f"if {self._differs(field, value)}:"):
                pieces = source.name("pieces")
                source.line(f"{pieces} = []")
                outer, self._append = self._append, f"{pieces}.append"
                self._field(field, value, True)
                self._flush()
                self._append = outer
                source.line(f"{section}.append(({field.tag}, join({pieces})))")
        with source.block(f"if {section} or {var}.unknown_tagged_fields:"):
            source.line(f"{self._append}(tagged_fields({section}, {var}.unknown_tagged_fields))")
        with source.block("else:"):
            source.line(f"{self._append}(b'\\0')")


_COMPILED: dict[str, Any] = {}


def _packer(codes: str) -> Any:
    """One bound pack per format, shared by all encoders."""
    if codes not in _COMPILED:
        _COMPILED[codes] = struct.Struct(">" + codes).pack
    return _COMPILED[codes]
