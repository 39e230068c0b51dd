"""Declares messages: a class with its fields in wire order is the table of the wire format. Nothing is written twice.

Only `protocol/messages/*.py` uses it. A declaration reads

    @request(ApiKey.FIND_COORDINATOR)
    class FindCoordinatorRequest(Message):
        key: String = until(3)
        key_type: Int8 = since(1)
        coordinator_keys: Array[String] = since(4)

The versions of an API are in `ottla.protocol.schema.api_versions`, where they can be listed without importing messages.

Every field has a default (Kafka's: zero, empty, or the one given), so constructors take any subset of the fields by keyword. A field that
is absent from a version keeps its default when decoded. Encoding another value raises `UnsupportedField`, unless the field is ignorable. A
tagged field is written only when it differs from its default. Unknown tagged fields are kept in `unknown_tagged_fields` and written again.

`ottla.protocol.schema.codegen` makes the codecs when a (class, version) is first used.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Generator
from typing import Annotated, Any, ClassVar, Final, Self, TypedDict, TypeVar, Unpack, dataclass_transform

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import codegen
from ottla.protocol.schema.api_versions import versions_of
from ottla.protocol.schema.fields import LAST_VERSION, NO_VERSIONS, ArrayOf, Field, Fixed, Schema, StructOf, Variable, Versions, WireType
from ottla.protocol.schema.shared import SharedEncoding
from ottla.protocol.schema.wire import MAX_ELEMENTS
from ottla.protocol.uuid import ZERO_UUID

_T = TypeVar("_T")
_NULLABLE: Final = "nullable"
_ARRAY: Final = "array"
_TUPLE: Final = "tuple"
_STRING = Variable("string", "")
_BYTES = Variable("bytes", b"")

Bool = Annotated[bool, Fixed("bool", "?", 1, False)]
Int8 = Annotated[int, Fixed("int8", "b", 1, 0)]
Int16 = Annotated[int, Fixed("int16", "h", 2, 0)]
Int32 = Annotated[int, Fixed("int32", "i", 4, 0)]
Int64 = Annotated[int, Fixed("int64", "q", 8, 0)]
Float64 = Annotated[float, Fixed("float64", "d", 8, 0.0)]
Uuid = Annotated[bytes, Fixed("uuid", "16s", 16, ZERO_UUID)]
String = Annotated[str, _STRING]
NullableString = Annotated[str | None, _STRING, _NULLABLE]
Bytes = Annotated[bytes, _BYTES]
NullableBytes = Annotated[bytes | None, _BYTES, _NULLABLE]
# Decoding returns a view of the input, never a copy. `encode_parts` passes the value on as it is.
Records = Annotated[memoryview | bytes | None, Variable("records", None), _NULLABLE]
Array = Annotated[list[_T], _ARRAY]
# An array of numbers that is not changed: messages and the state of the cluster may have the same object.
TupleOf = Annotated[tuple[_T, ...], _TUPLE]
NullableArray = Annotated[list[_T] | None, _ARRAY, _NULLABLE]

_UNSET: Final = object()


class _Options(TypedDict, total=False):
    """Options of a field beside its versions."""

    default: Any
    nullable_since: int
    ignorable: bool
    tag: int
    flexible: bool


class _Declared(typing.NamedTuple):
    versions: Versions
    options: _Options


def field(**options: Unpack[_Options]) -> Any:
    """A field of every version. `flexible=False` keeps the old encoding in flexible versions (client id of the request header)."""
    return _Declared(Versions(0, LAST_VERSION), options)


def since(first: int, **options: Unpack[_Options]) -> Any:
    """A field of version `first` and later."""
    return _Declared(Versions(first, LAST_VERSION), options)


def until(last: int, **options: Unpack[_Options]) -> Any:
    """A field of versions up to and including `last`."""
    return _Declared(Versions(0, last), options)


def between(first: int, last: int, **options: Unpack[_Options]) -> Any:
    """A field of versions `first` to `last`, both included."""
    return _Declared(Versions(first, last), options)


class Struct:
    """Base of every declared class. Equality and repr are for tests and logs."""

    __slots__ = ("unknown_tagged_fields",)

    SCHEMA: ClassVar[Schema]
    IS_SHARED: ClassVar[bool] = False
    """Whether the encoding of an object is kept for other messages that contain it."""
    unknown_tagged_fields: dict[int, bytes] | None

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tagged_fields == other.unknown_tagged_fields and all(
            getattr(self, field.name) == getattr(other, field.name) for field in self.SCHEMA.fields
        )

    __hash__ = None  # type: ignore[assignment]  # messages are mutable; object's hash would contradict their equality

    def __repr__(self) -> str:
        shown = [f"{field.name}={_shown(getattr(self, field.name))}" for field in self.SCHEMA.fields]
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _shown(value: object) -> str:
    return f"<{value.nbytes} bytes>" if isinstance(value, memoryview) else repr(value)


class SharedStruct(Struct):
    """Base of structures of which one object is an element of several messages. Encoders in steps encode such an object once.

    It must not change after that.
    """

    __slots__ = ("encoding", "encoding_version")

    IS_SHARED: ClassVar[bool] = True
    encoding: SharedEncoding | bytes
    encoding_version: int
    """The version of `encoding`; -1 while there is none."""


class Message(Struct):
    """Base of classes that are encoded on their own: requests, responses, headers, records of internal topics."""

    __slots__ = ()

    _decoders: ClassVar[dict[int, codegen.Decoder]]
    _encoders: ClassVar[dict[int, codegen.Encoder]]
    _part_encoders: ClassVar[dict[int, codegen.PartEncoder]]
    _step_decoders: ClassVar[dict[int, codegen.StepDecoder]]
    _step_encoders: ClassVar[dict[int, codegen.StepEncoder]]

    @classmethod
    def decode(
        cls, buf: bytes | bytearray | memoryview, version: int, offset: int = 0, most_elements: int = MAX_ELEMENTS
    ) -> tuple[Self, int]:
        """The message that starts at `offset`, and the offset after it. Bytes behind that offset are not looked at.

        A request has at most `most_elements` in all its arrays. Raises UnsupportedVersion when there is no such version, and ProtocolError,
        and nothing else, on bytes that are not such a message.
        """
        decoder = cls._decoders.get(version)
        if decoder is None:
            decoder = cls.decoder(version)
        return decoder(buf, offset, most_elements)  # type: ignore[return-value]  # the table holds this class's decoders

    def encode(self, version: int) -> bytes:
        """The bytes of this message. Raises UnsupportedVersion, UnsupportedField, or InvalidValue when a value does not fit its type."""
        encoder = self._encoders.get(version)
        if encoder is None:
            encoder = self.encoder(version)
        return encoder(self)

    def encode_parts(self, version: int) -> list[bytes | memoryview]:
        """The bytes of `encode` in parts. Every `Records` value is a separate part, passed on without a copy."""
        encoder = self._part_encoders.get(version)
        if encoder is None:
            encoder = self._part_encoders[version] = codegen.compile_part_encoder(type(self), version)
        return encoder(self)

    @classmethod
    def decode_steps(
        cls, buf: bytes | bytearray | memoryview, version: int, offset: int = 0, most_elements: int = MAX_ELEMENTS
    ) -> Generator[None, None, tuple[Self, int]]:
        """`decode` as a generator that yields after every element of an array, for messages that take too long to decode at once."""
        decoder = cls._step_decoders.get(version)
        if decoder is None:
            decoder = cls._step_decoders[version] = codegen.compile_step_decoder(cls, version)
        return decoder(buf, offset, most_elements)  # type: ignore[return-value]  # the table holds this class's decoders

    def encode_steps(self, version: int) -> Generator[None, None, list[bytes | memoryview]]:
        """`encode` as a generator that yields after every element of an array, and returns the bytes in parts.

        A long part of a SharedStruct is the same object in all messages that contain it.
        """
        encoder = self._step_encoders.get(version)
        if encoder is None:
            encoder = self._step_encoders[version] = codegen.compile_step_encoder(type(self), version)
        return encoder(self)

    @classmethod
    def decoder(cls, version: int) -> codegen.Decoder:
        """The function behind `decode` for one version, for callers that look it up once."""
        if version not in cls._decoders:
            cls._decoders[version] = codegen.compile_decoder(cls, version)
        return cls._decoders[version]

    @classmethod
    def encoder(cls, version: int) -> codegen.Encoder:
        """The function behind `encode` for one version."""
        if version not in cls._encoders:
            cls._encoders[version] = codegen.compile_encoder(cls, version)
        return cls._encoders[version]


@dataclass_transform(kw_only_default=True)
def request(api_key: ApiKey) -> Callable[[type[_T]], type[_T]]:
    """Declare the request of an API."""
    return lambda cls: _declare(cls, "request", api_key, *versions_of(api_key))


@dataclass_transform(kw_only_default=True)
def response(api_key: ApiKey) -> Callable[[type[_T]], type[_T]]:
    """Declare the response of an API."""
    return lambda cls: _declare(cls, "response", api_key, *versions_of(api_key))


@dataclass_transform(kw_only_default=True)
def header(*, versions: tuple[int, int], flexible: int) -> Callable[[type[_T]], type[_T]]:
    """Declare the header that precedes every request or response; `flexible` is the first version with tagged fields."""
    return _declaration("header", versions, flexible)


@dataclass_transform(kw_only_default=True)
def data(*, versions: tuple[int, int], flexible: int | None) -> Callable[[type[_T]], type[_T]]:
    """Declare bytes that are stored or carried inside something else: records of internal topics, control records, member metadata."""
    return _declaration("data", versions, flexible)


@dataclass_transform(kw_only_default=True)
def struct(cls: type[_T]) -> type[_T]:
    """Declare a structure nested in messages. Its versions are those of the message that contains it."""
    return _declare(cls, "struct", None, Versions(0, LAST_VERSION), NO_VERSIONS)


def _declaration(kind: str, versions: tuple[int, int], flexible: int | None) -> Callable[[type[_T]], type[_T]]:
    valid = Versions(*versions)
    flexible_versions = NO_VERSIONS if flexible is None else Versions(flexible, valid.last)
    return lambda cls: _declare(cls, kind, None, valid, flexible_versions)


def _declare(cls: type[_T], kind: str, api_key: ApiKey | None, versions: Versions, flexible: Versions) -> type[_T]:
    """Create the class again with slots in place of the declarations of its body, as dataclasses do."""
    declared = {name: value for name, value in vars(cls).items() if isinstance(value, _Declared)}
    hints = cls.__annotations__  # its own alone, also where a base class has some
    fields = tuple(_field(name, hints[name], value) for name, value in declared.items())
    body = {name: value for name, value in vars(cls).items() if name not in declared and name not in ("__dict__", "__weakref__")}
    body["__slots__"] = tuple(declared)
    body["SCHEMA"] = Schema(cls.__name__, kind, api_key, versions, flexible, fields)
    body["__init__"] = _first_init
    if kind != "struct":
        body |= {"_decoders": {}, "_encoders": {}, "_part_encoders": {}, "_step_decoders": {}, "_step_encoders": {}}
    return typing.cast("type[_T]", type(cls.__name__, cls.__bases__, body))


def _first_init(self: Struct, **values: Any) -> None:
    """`__init__` until the first object is made. Compiling five hundred constructors would double the start-up time."""
    cls = type(self)
    cls.__init__ = codegen.compile_init(cls)  # type: ignore[method-assign]  # replaces itself, on purpose
    cls.__init__(self, **values)


def _field(name: str, annotation: Any, declared: _Declared) -> Field:
    wire_type, nullable = _wire_type(annotation)
    options = declared.options
    default = options.get("default", _UNSET)
    if default is _UNSET:
        default = wire_type.zero if isinstance(wire_type, Fixed | Variable) else ()
    nullable_versions = Versions(options.get("nullable_since", 0), LAST_VERSION).within(declared.versions) if nullable else NO_VERSIONS
    return Field(
        name=name,
        type=wire_type,
        versions=declared.versions,
        nullable=nullable_versions,
        default=default,
        ignorable=options.get("ignorable", False),
        tag=options.get("tag"),
        flexible=options.get("flexible", True),
    )


def _wire_type(annotation: Any) -> tuple[WireType, bool]:
    """The wire type of an annotation, and whether null is allowed."""
    metadata: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
    if metadata:
        nullable = _NULLABLE in metadata
        held = annotation.__origin__
        if metadata[0] == _TUPLE:
            return ArrayOf(_wire_type(typing.get_args(held)[0])[0], is_tuple=True), nullable
        if metadata[0] != _ARRAY:
            return metadata[0], nullable
        array = held if typing.get_origin(held) is list else typing.get_args(held)[0]
        return ArrayOf(_wire_type(typing.get_args(array)[0])[0]), nullable
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        cls, _ = typing.get_args(annotation)
        return StructOf(cls), True
    return StructOf(annotation), False
