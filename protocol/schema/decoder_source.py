"""Generates the source of decoders.

A decoder advances its position `p` without checks. A slice past the end is short, and every later read of even one byte fails. So one
comparison of `p` with the end, at the very end, finds every overrun. Only arrays allocate memory by a number that was read. Their count is
first compared with the remaining bytes, and in requests with the rest of the `allowed` number of elements. So is the count of tagged
fields.

A decoder in steps is the same code as a generator: it yields after every element of an array and every tagged field, and returns the same
result.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ottla.protocol.schema import wire
from ottla.protocol.schema.fields import ArrayOf, Field, Fixed, StructOf, Variable, WireType
from ottla.protocol.schema.source import Source, min_size, present_fields, struct_name, tagged_fields_of

if TYPE_CHECKING:
    from ottla.protocol.schema.message import Message, Struct


def decoder_source(cls: type[Message], version: int, *, in_steps: bool) -> tuple[str, dict[str, Any]]:
    """The source of `decode(buf, p, allowed)`, and the namespace in which it runs."""
    return _DecoderSource(version, cls.SCHEMA.flexible.cover(version), in_steps).generate(cls)


def has_records(cls: type[Struct]) -> bool:
    """Whether a message carries records. Such messages are decoded from a view, so that the records are not copied."""
    return any(_type_has_records(field.type) for field in cls.SCHEMA.fields)


def _type_has_records(wire_type: WireType) -> bool:
    if isinstance(wire_type, ArrayOf):
        return _type_has_records(wire_type.element)
    if isinstance(wire_type, StructOf):
        return has_records(wire_type.cls)
    return wire_type.name == "records"


class _Unpackers(dict[int, Any]):
    """Count -> `unpack_from` for an array of that length. Only short ones are kept, so that no peer can fill the memory with them."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> Any:
        unpack = struct.Struct(f">{count}{self._code}").unpack_from
        if count <= 64:
            self[count] = unpack
        return unpack


_UNPACKERS = {code: _Unpackers(code) for code in "?bhHiIqd"}


class _DecoderSource:
    def __init__(self, version: int, flexible: bool, in_steps: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._in_steps = in_steps
        self._source = Source()
        self._run: list[tuple[str, int, str]] = []  # struct code, size, target of fields not yet read
        self._view = False
        self._is_request = False
        self._checks_texts = False

    def generate(self, cls: type[Message]) -> tuple[str, dict[str, Any]]:
        source = self._source
        # A message without records is decoded from bytes: slices of bytes cost half as much as slices of a view. Headers precede bodies
        # that may be large, so they are read from the view as well.
        self._view = has_records(cls) or cls.SCHEMA.kind == "header"
        source.constant("new", object.__new__)
        self._is_request = cls.SCHEMA.kind == "request"
        # Names in records of coordinators are in answers to all clients, too. A leader's answers come from another broker.
        self._checks_texts = cls.SCHEMA.kind in ("request", "data")
        for error in (struct.error, wire.Truncated, wire.InvalidTaggedField):
            source.constant("StructError" if error is struct.error else error.__name__, error)
        for function in (
            wire.bad_length,
            wire.too_long,
            wire.too_many,
            wire.check_replaced,
            wire.read_uvarint,
            wire.read_compact_length,
            wire.read_compact_string_length,
            wire.read_unknown_tagged_field,
        ):
            source.constant(function.__name__, function)
        for reserved in ("buf", "p", "q", "end", "n", "m", "tag", "size", "new", "present", "unknown", "struct_error", "allowed"):
            source.name(reserved)
        with source.block(f"def decode(buf, p, allowed={wire.MAX_ELEMENTS}):"):
            if self._view:
                with source.block("if type(buf) is not memoryview:"):
                    source.line("buf = memoryview(buf)")
            elif self._in_steps:
                # A view of a very large frame is read as it is: copying the frame would hold the loop for long.
                with source.block("if type(buf) is bytearray:"):
                    source.line("buf = memoryview(buf)")
            else:
                with source.block("if type(buf) is not bytes:"):
                    source.line("buf = bytes(buf)")
            source.line("end = len(buf)")
            with source.block("try:"):
                self._struct(cls, "m")
            with source.block("except (StructError, IndexError):"):
                source.line(f"raise Truncated('{cls.__name__} version {self._version}: the bytes end at %d' % end) from None")
            with source.block("if p > end:"):
                source.line(f"raise Truncated('{cls.__name__} version {self._version}: the bytes end at %d' % end)")
            if self._in_steps:
                source.line("yield")
            source.line("return m, p")
        return source.text(), source.namespace

    def _struct(self, cls: type[Struct], var: str) -> None:
        source = self._source
        fields = cls.SCHEMA.fields
        present = present_fields(fields, self._version)
        source.line(f"{var} = new({source.constant(cls.__name__, cls)})")
        for field in fields:
            if field not in present:
                self._default(field, f"{var}.{field.name}")
        source.line(f"{var}.unknown_tagged_fields = None")
        if cls.IS_SHARED:
            source.line(f"{var}.encoding_version = -1")
        for field in present:
            self._field(field, f"{var}.{field.name}", self._flexible and field.flexible)
        if self._flexible:
            self._tagged_section(cls, var, tagged_fields_of(fields, self._version))
        self._flush()

    def _default(self, field: Field, target: str) -> None:
        """Set a field that is absent, or may be. Structures are filled in place: their constructor would take three times as long."""
        source = self._source
        if field.default is None or not isinstance(field.type, StructOf):
            source.line(f"{target} = {field.make_default()!r}")
            return
        cls = field.type.cls
        item = source.name(f"{field.name}_default")
        source.line(f"{item} = new({source.constant(cls.__name__, cls)})")
        for inner in field.type.fields:
            self._default(inner, f"{item}.{inner.name}")
        source.line(f"{item}.unknown_tagged_fields = None")
        if cls.IS_SHARED:
            source.line(f"{item}.encoding_version = -1")
        source.line(f"{target} = {item}")

    def _field(self, field: Field, target: str, flexible: bool) -> None:
        nullable = field.nullable.cover(self._version)
        if isinstance(field.type, StructOf) and nullable:
            self._nullable_struct(field.type, target, field.tag is not None, field.name)
        else:
            self._value(field.type, target, nullable, flexible, field.name)

    def _value(self, wire_type: WireType, target: str, nullable: bool, flexible: bool, name: str) -> None:
        match wire_type:
            case Fixed():
                self._run.append((wire_type.code, wire_type.size, target))
            case Variable():
                self._variable(wire_type, target, nullable, flexible, name)
            case ArrayOf():
                self._array(wire_type, target, nullable, flexible, name)
            case StructOf():
                self._nested(wire_type, target, name)

    def _flush(self) -> None:
        """Read the run of fixed-size fields collected so far."""
        run, self._run = self._run, []
        if not run:
            return
        if len(run) == 1 and run[0][0] == "B":
            self._source.line(f"{run[0][2]} = buf[p]")
        else:
            codes = "".join(code for code, _, _ in run)
            unpack = self._source.constant(f"unpack_{struct_name(codes)}", _unpacker(codes))
            targets = ", ".join(target for _, _, target in run)
            self._source.line(f"{targets} = {unpack}(buf, p)" + ("[0]" if len(run) == 1 else ""))
        self._source.line(f"p += {sum(size for _, size, _ in run)}")

    def _length(self, code: str, size: int, flexible: bool, long_length: str) -> None:
        """Read a length into `n`: one more than the length when flexible, else the length itself."""
        if not flexible:
            self._run.append((code, size, "n"))
            self._flush()
            return
        self._run.append(("B", 1, "n"))
        self._flush()
        with self._source.block("if n > 127:"):
            self._source.line(f"n, p = {long_length}(buf, p - 1)")

    def _variable(self, wire_type: Variable, target: str, nullable: bool, flexible: bool, name: str) -> None:
        source = self._source
        if wire_type.name == "string":
            self._length("h", 2, flexible, "read_compact_string_length")
            # As Apache Kafka: U+FFFD replaces invalid UTF-8 (10 ns more than strict decoding).
            value = 'str(buf[p:q], "utf-8", "replace")' if self._view or self._in_steps else 'buf[p:q].decode("utf-8", "replace")'
        else:
            self._length("i", 4, flexible, "read_compact_length")
            value = "bytes(buf[p:q])" if wire_type.name == "bytes" and (self._view or self._in_steps) else "buf[p:q]"
        # Any negative length is a null where null is allowed, as in Apache Kafka.
        absent = "not n" if flexible else "n < 0"
        length = "n - 1" if flexible else "n"
        if nullable:
            with source.block(f"if {absent}:"):
                source.line(f"{target} = None")
            with source.block("else:"):
                self._take(target, length, value, wire_type, name)
        else:
            with source.block(f"if {absent}:"):
                source.line(f"raise bad_length({name!r}, {length}, end - p)")
            self._take(target, length, value, wire_type, name)

    def _take(self, target: str, length: str, value: str, wire_type: Variable, name: str) -> None:
        self._source.line(f"q = p + {length}")
        if self._in_steps and self._is_request and wire_type.name == "bytes":
            with self._source.block(f"if {wire.MAX_BYTES} < q - p <= end - p:"):
                self._source.line(f"raise too_long({name!r}, q - p)")
        self._source.line(f"{target} = {value}")
        if self._checks_texts and wire_type.name == "string":
            with self._source.block(f"if q - p > {wire.MAX_REPLACED_BYTES}:"):
                self._source.line(f"check_replaced({name!r}, {target})")
        self._source.line("p = q")

    def _array(self, array: ArrayOf, target: str, nullable: bool, flexible: bool, name: str) -> None:
        source = self._source
        self._length("i", 4, flexible, "read_compact_length")
        if flexible:
            source.line("n -= 1")
        if nullable:
            with source.block("if n < 0:"):
                source.line(f"{target} = None")
            with source.block("else:"):
                self._elements(array, target, flexible, name, "")
        else:
            self._elements(array, target, flexible, name, "n < 0 or ")

    def _elements(self, array: ArrayOf, target: str, flexible: bool, name: str, also_bad: str) -> None:
        source = self._source
        element = array.element
        # An element that takes no bytes still counts as one: a count is never more than the bytes left.
        size = max(1, min_size(element, self._version, flexible))
        left = "end - p" if size == 1 else f"(end - p) // {size}"
        with source.block(f"if {also_bad}n > {left}:"):
            source.line(f"raise bad_length({name!r}, n, end - p)")
        if self._is_request:
            source.line("allowed -= n")
            with source.block("if allowed < 0:"):
                source.line(f"raise too_many({name!r})")
        if isinstance(element, Fixed) and element.code != "16s":
            unpackers = source.constant(f"arrays_of_{element.name}", _UNPACKERS[element.code])
            numbers = f"{unpackers}[n](buf, p)"
            source.line(f"{target} = {numbers if array.is_tuple else f'list({numbers})'}")
            source.line(f"p += {element.size} * n")
            return
        item = source.name(f"{name}_item")
        items = source.name(f"{name}_items")
        source.line(f"{items} = []")
        with source.block("for _ in range(n):"):
            if isinstance(element, StructOf):
                self._struct(element.cls, item)
            else:
                self._value(element, item, False, flexible, name)
                self._flush()
            source.line(f"{items}.append({item})")
            if self._in_steps:
                source.line("yield")
        source.line(f"{target} = {items}")

    def _nested(self, wire_type: StructOf, target: str, name: str) -> None:
        item = self._source.name(f"{name}_item")
        self._flush()
        self._struct(wire_type.cls, item)
        self._source.line(f"{target} = {item}")

    def _nullable_struct(self, wire_type: StructOf, target: str, tagged: bool, name: str) -> None:
        """A byte before the structure says whether it is present. Negative stands for null; in a tagged field 0 does."""
        self._run.append(("b", 1, "present"))
        self._flush()
        with self._source.block("if present <= 0:" if tagged else "if present < 0:"):
            self._source.line(f"{target} = None")
        with self._source.block("else:"):
            self._nested(wire_type, target, name)

    def _tagged_section(self, cls: type[Struct], var: str, tagged: list[Field]) -> None:
        source = self._source
        count = source.name("tags")
        self._run.append(("B", 1, count))
        self._flush()
        with source.block(f"if {count}:"):
            with source.block(f"if {count} > 127:"):
                source.line(f"{count}, p = read_uvarint(buf, p - 1)")
            if self._is_request:
                source.line(f"allowed -= {count}")
                with source.block("if allowed < 0:"):
                    source.line("raise too_many('tagged fields')")
            with source.block(f"for _ in range({count}):"):
                tag_end = source.name("tag_end")
                source.line("tag, p = read_uvarint(buf, p)")
                source.line("size, p = read_uvarint(buf, p)")
                source.line(f"{tag_end} = p + size")
                for field in tagged:
                    with source.block(f"{'if' if field is tagged[0] else 'elif'} tag == {field.tag}:"):
                        self._field(field, f"{var}.{field.name}", True)
                        self._flush()
                        with source.block(f"if p != {tag_end}:"):
                            source.line(f"raise InvalidTaggedField('{cls.__name__}.{field.name} is not as long as its tag says')")
                if tagged:
                    with source.block("else:"):
                        self._unknown(var, tag_end)
                else:
                    self._unknown(var, tag_end)
                if self._in_steps:
                    source.line("yield")

    def _unknown(self, var: str, tag_end: str) -> None:
        source = self._source
        with source.block(f"if {var}.unknown_tagged_fields is None:"):
            source.line(f"{var}.unknown_tagged_fields = {{}}")
        source.line(f"{var}.unknown_tagged_fields[tag] = read_unknown_tagged_field(buf, p, size)")
        source.line(f"p = {tag_end}")


_COMPILED: dict[str, Any] = {}


def _unpacker(codes: str) -> Any:
    """One bound unpack_from per format, shared by all decoders."""
    if codes not in _COMPILED:
        _COMPILED[codes] = struct.Struct(">" + codes).unpack_from
    return _COMPILED[codes]
