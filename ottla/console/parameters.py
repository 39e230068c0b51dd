"""Checks the parameters and bodies of requests to the console, before a broker sees anything of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from ottla.protocol.topic_partition import TopicPartition

MAX_BODY_BYTES: Final = 2 * 1024 * 1024
"""Size of the body of a request, bytes; a record of the default size fits twice, as text with escapes."""
_LONGEST_NUMBER: Final = 19
_INT64: Final = range(-(2**63), 2**63)


class BadParameter(ValueError):
    """A parameter of a request that cannot be used; the text is for the user."""


def number(text: str | None, name: str) -> int | None:
    """A parameter that is a number from 0 on, if it is given. Raises BadParameter."""
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) >= _LONGEST_NUMBER:
        raise BadParameter(f"{name} is not a number")
    return int(text)


def signed(text: str | None, name: str) -> int | None:
    """A parameter that is a number, also below 0, if it is given. Raises BadParameter."""
    if text is None or not text.startswith("-"):
        return number(text, name)
    found = number(text[1:], name)
    if found is None:
        raise BadParameter(f"{name} is not a number")
    return -found


class Body:
    """A JSON object of a request. All methods raise BadParameter for a field that is missing or of another type."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    @classmethod
    def parse(cls, data: bytes) -> Body:
        """The object in the body of a request; without a body it is empty. Raises BadParameter."""
        try:
            found = json.loads(data or b"{}", parse_constant=_refuse_constant)
        except RecursionError:
            raise BadParameter("the body is nested too deeply") from None
        except ValueError:
            raise BadParameter("the body is not JSON") from None
        if not isinstance(found, dict):
            raise BadParameter("the body is not a JSON object")
        return cls(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def described(self, hidden: frozenset[str]) -> dict[str, Any]:
        """The fields for the audit log, without the values of the hidden ones."""
        return {name: _hidden(value) if name in hidden else value for name, value in self._fields.items()}

    def takes(self, *names: str) -> None:
        """Raises BadParameter if the object has another field than these: no field is ignored."""
        for name in self._fields:
            if name not in names:
                raise BadParameter(f"the field {name[:100]!a} is unknown; known are {', '.join(names)}")

    def raw(self, name: str) -> Any:
        """A field of any type."""
        return self._fields.get(name)

    def has(self, name: str) -> bool:
        """Whether the field is given, and not null."""
        return self._fields.get(name) is not None

    def text(self, name: str) -> str:
        """A field that is text, and can be encoded."""
        return _text(self._fields.get(name), name)

    def optional_text(self, name: str) -> str | None:
        """A field that is text, or None."""
        return self.text(name) if self.has(name) else None

    def integer(self, name: str) -> int:
        """A field that is an integer of 64 bits."""
        return _integer(self._fields.get(name), name)

    def optional_integer(self, name: str) -> int | None:
        """A field that is an integer, or None."""
        return self.integer(name) if self.has(name) else None

    def flag(self, name: str) -> bool:
        """A field that is true or false; false if it is missing."""
        found = self._fields.get(name, False)
        if not isinstance(found, bool):
            raise BadParameter(f"{name} is neither true nor false")
        return found

    def texts(self, name: str) -> list[str]:
        """A field that is a list of texts; empty if it is missing."""
        return [_text(each, name) for each in self._list(name)]

    def integers(self, name: str) -> list[int]:
        """A field that is a list of integers; empty if it is missing."""
        return [_integer(each, name) for each in self._list(name)]

    def objects(self, name: str) -> list[Body]:
        """A field that is a list of objects; empty if it is missing."""
        found = self._list(name)
        if not all(isinstance(each, dict) for each in found):
            raise BadParameter(f"{name} is not a list of objects")
        return [Body(each) for each in found]

    def assignment(self, name: str) -> list[list[int]]:
        """A field that is a list of lists of broker ids, one for each partition; empty if it is missing."""
        return [Body({name: each}).integers(name) for each in self._list(name)]

    def text_by_name(self, name: str) -> dict[str, str]:
        """A field that is an object of texts; empty if it is missing."""
        return {_text(key, name): _text(value, name) for key, value in self._object(name).items()}

    def optional_text_by_name(self, name: str) -> dict[str, str | None]:
        """A field that is an object of texts and nulls."""
        return {_text(key, name): None if value is None else _text(value, name) for key, value in self._object(name).items()}

    def amount_by_name(self, name: str) -> dict[str, float]:
        """A field that is an object of finite numbers; empty if it is missing."""
        found = self._object(name)
        if any(isinstance(value, bool) or not isinstance(value, int | float) for value in found.values()):
            raise BadParameter(f"{name} has a value that is not a number")
        try:
            amounts = {_text(key, name): float(value) for key, value in found.items()}
        except OverflowError:
            raise BadParameter(f"{name} has a number that is too large") from None
        if not all(map(math.isfinite, amounts.values())):
            raise BadParameter(f"{name} has a number that is too large")
        return amounts

    def partitions(self, name: str) -> list[TopicPartition]:
        """A field that is a list of objects with `topic` and `partition`; empty if it is missing."""
        found = []
        for each in self.objects(name):
            each.takes("topic", "partition")
            found.append(TopicPartition(each.text("topic"), each.integer("partition")))
        return found

    def confirmed(self, name: str) -> None:
        """Raises BadParameter unless the field `confirm` repeats the name of the object that changes."""
        if self.optional_text("confirm") != name:
            raise BadParameter("nothing was changed: the field confirm must repeat the name")

    def _list(self, name: str) -> list[Any]:
        found = self._fields.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            raise BadParameter(f"{name} is not a list")
        return found

    def _object(self, name: str) -> dict[str, Any]:
        found = self._fields.get(name)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise BadParameter(f"{name} is not an object")
        return found


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise BadParameter(f"{name} is missing" if value is None else f"{name} is not text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadParameter(f"{name} has half of a surrogate pair, which is no character") from None
    return value


def _integer(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadParameter(f"{name} is missing" if value is None else f"{name} is not an integer")
    if value not in _INT64:
        raise BadParameter(f"{name} is out of range")
    return value


def _hidden(value: object) -> object:
    """Names in an object are kept, because they show what was set."""
    return dict.fromkeys(value, "(hidden)") if isinstance(value, dict) else "(hidden)"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
