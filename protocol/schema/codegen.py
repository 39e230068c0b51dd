"""Turns a declared class into functions: a constructor per class, a decoder and an encoder per (class, version), each made on first use.

The source is straight-line Python, registered with `linecache`: a debugger steps through it and a traceback shows its lines. `source_of`
returns it. Four things make it fast:

- Neighbouring fields of fixed size, together with the first byte of the length that follows them, are one precompiled `Struct` call.
- Varints of one byte are read in place.
- The loops over arrays are inline.
- Objects are filled without a call of their constructor.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ottla.protocol.schema.decoder_source import decoder_source
from ottla.protocol.schema.encoder_source import encoder_source
from ottla.protocol.schema.fields import StructOf
from ottla.protocol.schema.source import compiled
from ottla.protocol.schema.wire import Buffer, UnsupportedVersion

if TYPE_CHECKING:
    from ottla.protocol.schema.message import Message, Struct

Decoder = Callable[..., "tuple[Message, int]"]
"""Called with buffer, offset, and optionally the most elements that a request may have."""
Encoder = Callable[["Message"], bytes]
PartEncoder = Callable[["Message"], "list[bytes | memoryview]"]
StepDecoder = Callable[[Buffer, int, int], "Generator[None, None, tuple[Message, int]]"]
StepEncoder = Callable[["Message"], "Generator[None, None, list[bytes | memoryview]]"]

_UNSET = object()


def compile_decoder(cls: type[Message], version: int) -> Decoder:
    """A function (buffer, offset, most elements) -> (message, offset after the message)."""
    _check_version(cls, version)
    source, namespace = decoder_source(cls, version, in_steps=False)
    return compiled(f"{cls.__name__} v{version} decode", "decode", source, namespace)  # type: ignore[no-any-return]  # made by exec


def compile_step_decoder(cls: type[Message], version: int) -> StepDecoder:
    """The decoder as a generator that yields after every element of an array."""
    _check_version(cls, version)
    source, namespace = decoder_source(cls, version, in_steps=True)
    return compiled(f"{cls.__name__} v{version} decode_steps", "decode", source, namespace)  # type: ignore[no-any-return]  # made by exec


def compile_encoder(cls: type[Message], version: int) -> Encoder:
    """A function message -> bytes."""
    _check_version(cls, version)
    source, namespace = encoder_source(cls, version, in_parts=False, in_steps=False)
    return compiled(f"{cls.__name__} v{version} encode", "encode", source, namespace)  # type: ignore[no-any-return]  # made by exec


def compile_part_encoder(cls: type[Message], version: int) -> PartEncoder:
    """A function message -> parts. Every value of type Records is a separate part."""
    _check_version(cls, version)
    source, namespace = encoder_source(cls, version, in_parts=True, in_steps=False)
    return compiled(f"{cls.__name__} v{version} encode_parts", "encode", source, namespace)  # type: ignore[no-any-return]  # made by exec


def compile_step_encoder(cls: type[Message], version: int) -> StepEncoder:
    """A generator that yields after every element of an array and returns parts, which may be cut anywhere."""
    _check_version(cls, version)
    source, namespace = encoder_source(cls, version, in_parts=True, in_steps=True)
    return compiled(f"{cls.__name__} v{version} encode_steps", "encode", source, namespace)  # type: ignore[no-any-return]  # made by exec


def compile_init(cls: type[Struct]) -> Callable[..., None]:
    """The constructor: every field by keyword, every field with its default."""
    namespace: dict[str, Any] = {"UNSET": _UNSET}
    parameters = []
    lines = []
    for field in cls.SCHEMA.fields:
        if field.default is not None and field.is_changeable:
            made = "[]"
            if isinstance(field.type, StructOf):
                made = f"{field.type.cls.__name__}()"
                namespace[field.type.cls.__name__] = field.type.cls
            parameters.append(f"{field.name}=UNSET")
            lines.append(f"    self.{field.name} = {made} if {field.name} is UNSET else {field.name}")
        else:
            parameters.append(f"{field.name}={field.default!r}")
            lines.append(f"    self.{field.name} = {field.name}")
    star = "*, " if parameters else ""
    lines.append("    self.unknown_tagged_fields = None")
    if cls.IS_SHARED:
        lines.append("    self.encoding_version = -1")
    source = "\n".join([f"def __init__(self, {star}{', '.join(parameters)}):", *lines, ""])
    return compiled(f"{cls.__module__}.{cls.__name__} init", "__init__", source, namespace)  # type: ignore[no-any-return]  # made by exec


def source_of(function: Callable[..., Any]) -> str:
    """The generated source of a decoder or encoder."""
    return "".join(linecache.getlines(function.__code__.co_filename))


def _check_version(cls: type[Message], version: int) -> None:
    if not cls.SCHEMA.versions.cover(version):
        first, last = cls.SCHEMA.versions
        raise UnsupportedVersion(f"{cls.__name__} has versions {first} to {last}, not {version}")
