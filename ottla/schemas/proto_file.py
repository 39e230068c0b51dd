"""Reads the messages and enums of a .proto file (protobuf.dev, language guides for proto2 and proto3), as a schema registry keeps it.

Services, options and extensions are skipped. Types of other files have no definition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_TOKENS: Final = 200_000
"""Words and signs of a file."""
MAX_DEPTH: Final = 50
"""Messages inside of messages."""
_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\.?[A-Za-z_][\w.]*|-?[\d.][\w.+]*|[{}()\[\]<>=;,:-])""", re.DOTALL
)
_LABELS: Final = frozenset({"optional", "required", "repeated"})
_PASSED_OVER: Final = frozenset({"option", "reserved", "extensions", "syntax", "edition", "import"})
_BLOCKS: Final = frozenset({"service", "extend"})
_LARGEST_NUMBER: Final = 2**29 - 1


class NotAProtoFile(ValueError):
    """The text is no .proto file, or has an unsupported element; the text of the error is for the user."""


@dataclass(frozen=True)
class ProtoField:
    """A field. `type` is the name of a scalar, or the full name of a message or an enum. A map is a repeated message of key and value."""

    name: str
    type: str
    is_repeated: bool = False
    is_map: bool = False


@dataclass
class ProtoMessage:
    """A message: its fields by number, and the messages that are declared in it, in their order."""

    name: str
    fields: dict[int, ProtoField] = field(default_factory=dict)
    nested: list[ProtoMessage] = field(default_factory=list)


@dataclass
class ProtoFile:
    """The messages at the top, in their order; all messages and all enums by full name."""

    top: list[ProtoMessage] = field(default_factory=list)
    messages: dict[str, ProtoMessage] = field(default_factory=dict)
    enums: dict[str, Mapping[int, str]] = field(default_factory=dict)

    def full_name(self, name: str, inside: str) -> str:
        """The full name of a type that is used inside of a message or a package: the innermost one that fits, or the name itself."""
        if name.startswith("."):
            return name[1:]
        while True:
            found = f"{inside}.{name}" if inside else name
            if found in self.messages or found in self.enums or not inside:
                return found
            inside = inside.rpartition(".")[0]


def read_proto(text: str) -> ProtoFile:
    """The contents of a file. Raises NotAProtoFile."""
    return _Parser(text).file()


def _tokens(text: str) -> Iterator[str]:
    at = count = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise NotAProtoFile(f"the schema has a sign that no .proto file has: {text[at]!a}")
        at = found.end()
        if found[1] is not None:
            count += 1
            if count > MAX_TOKENS:
                raise NotAProtoFile(f"the schema has more than {MAX_TOKENS} words and signs")
            yield found[1]


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens, None)
        self._file = ProtoFile()
        self._scopes: list[tuple[ProtoMessage, str]] = []
        """Messages with their full names."""

    def _take(self, wanted: str = "") -> str:
        """The next token, which has to be the wanted one. Raises NotAProtoFile."""
        found = self._next
        if found is None or (wanted and found != wanted):
            raise NotAProtoFile(f"the .proto file has {'its end' if found is None else repr(found[:50])} instead of {wanted or 'more'}")
        self._next = next(self._tokens, None)
        return found

    def file(self) -> ProtoFile:
        """See read_proto."""
        package = ""
        while self._next is not None:
            word = self._take()
            if word == "package":
                package = self._take()
                self._take(";")
            elif word == "message":
                self._file.top.append(self._message(package, 0))
            elif word == "enum":
                self._enum(package)
            else:
                self._pass_over(word)
        for message, name in self._scopes:
            for number, each in message.fields.items():
                if each.type not in SCALARS:
                    full = self._file.full_name(each.type, name)
                    message.fields[number] = ProtoField(each.name, full, each.is_repeated, each.is_map)
        return self._file

    def _pass_over(self, word: str) -> None:
        """Skip a statement that has no part in the encoding. Raises NotAProtoFile for an unknown word."""
        if word == ";":
            return
        if word not in _PASSED_OVER | _BLOCKS:
            raise NotAProtoFile(f"the .proto file has {word[:50]!r} where a message, an enum or an option is expected")
        depth = 0
        while True:
            sign = self._take()
            depth += (sign == "{") - (sign == "}")
            if depth == 0 and sign == ("}" if word in _BLOCKS else ";"):
                return

    def _message(self, inside: str, depth: int) -> ProtoMessage:
        if depth > MAX_DEPTH:
            raise NotAProtoFile(f"the .proto file has messages inside of more than {MAX_DEPTH} others")
        name = self._take()
        full = f"{inside}.{name}" if inside else name
        made = ProtoMessage(name)
        self._file.messages[full] = made
        self._scopes.append((made, full))
        self._take("{")
        while (word := self._take()) != "}":
            if word == "message":
                made.nested.append(self._message(full, depth + 1))
            elif word == "enum":
                self._enum(full)
            elif word == "oneof":
                self._oneof(made)
            elif word == "map" and self._next == "<":
                self._map(made, full)
            elif word in _PASSED_OVER | _BLOCKS | {";"}:
                self._pass_over(word)
            else:
                self._field(made, word)
        return made

    def _oneof(self, message: ProtoMessage) -> None:
        self._take()
        self._take("{")
        while (word := self._take()) != "}":
            if word == "option":
                self._pass_over(word)
            else:
                self._field(message, word)

    def _field(self, message: ProtoMessage, word: str) -> None:
        label = word if word in _LABELS else ""
        kind = self._take() if label else word
        if kind == "group":
            raise NotAProtoFile("the .proto file has a group, which is not read")
        self._add(message, ProtoField(self._take(), kind, label == "repeated"))

    def _map(self, message: ProtoMessage, full: str) -> None:
        """A map is encoded as repeated entries with the key as field 1 and the value as field 2."""
        self._take("<")
        key = self._take()
        self._take(",")
        value = self._take()
        self._take(">")
        name = self._take()
        entry_name = f"{full}.{name} entry"
        entry = ProtoMessage(entry_name, {1: ProtoField("key", key), 2: ProtoField("value", value)})
        self._file.messages[entry_name] = entry
        self._scopes.append((entry, full))
        self._add(message, ProtoField(name, f".{entry_name}", is_repeated=True, is_map=True))

    def _add(self, message: ProtoMessage, made: ProtoField) -> None:
        self._take("=")
        number = _integer(self._take())
        if not 0 < number <= _LARGEST_NUMBER or number in message.fields:
            raise NotAProtoFile(f"the field {made.name[:50]} has the number {number}, which is taken or none of a field")
        self._options()
        message.fields[number] = made

    def _options(self) -> None:
        """Pass over the options in brackets, and the end of the statement."""
        depth = 0
        while (sign := self._take()) != ";" or depth:
            depth += (sign in "[{") - (sign in "]}")
            if depth < 0 or (depth == 0 and sign not in "]}"):
                raise NotAProtoFile(f"the .proto file has {sign[:50]!r} after the number of a field")

    def _enum(self, inside: str) -> None:
        name = self._take()
        names: dict[int, str] = {}
        self._take("{")
        while (word := self._take()) != "}":
            if word in _PASSED_OVER | {";"}:
                self._pass_over(word)
                continue
            self._take("=")
            sign = -1 if self._next == "-" and self._take() else 1
            number = sign * _integer(self._take())
            self._options()
            names.setdefault(number, word)
        self._file.enums[f"{inside}.{name}" if inside else name] = names


SCALARS: Final = frozenset(
    {
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64",
        "bool", "string", "bytes",
    }
)  # fmt: skip
"""Types that are no messages and no enums."""


def _integer(text: str) -> int:
    try:
        return int(text, 8 if re.fullmatch(r"0[0-7]+", text) else 0)
    except ValueError:
        raise NotAProtoFile(f"the .proto file has {text[:50]!r} where a number is expected") from None
