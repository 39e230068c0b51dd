"""Translates regular expressions and replacements of Java into those of Python.

A construct without an equivalent is refused, so that no pattern matches other names here than in Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_LINE_ENDS: Final = "\n\r\x85\u2028\u2029"
_DOT: Final = f"[^{_LINE_ENDS}]"
_END: Final = f"(?=(?:\r\n|[{_LINE_ENDS}])?\\Z)"
_SAME_ESCAPES: Final = frozenset("dDwWsStnrfa")
_OUTSIDE_CLASSES: Final = {"b": r"\b", "B": r"\B", "A": r"\A", "z": r"\Z", "Z": _END}
_CLASSES: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Space": r" \t\n\x0B\f\r",
    "XDigit": "0-9a-fA-F",
}
_PROPERTY: Final = re.compile(r"\{(\w+)\}")
_HEXADECIMAL: Final = re.compile(r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}")
_GROUP_NAME: Final = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>")
_BACK_REFERENCE: Final = re.compile(r"\$([0-9]+)")
_LARGEST_INT: Final = 2**31 - 1
_MOST_DIGITS: Final = len(str(_LARGEST_INT))
_GROUP_KIND: Final = re.compile(r"\?(?::|=|!|>|<=|<!|i:)")


class Untranslatable(ValueError):
    """A pattern or replacement that is invalid, or that Python cannot express."""


def java_pattern(text: str) -> re.Pattern[str]:
    """The pattern for Python. Raises Untranslatable."""
    flags = re.ASCII  # as Java's classes of characters without UNICODE_CHARACTER_CLASS
    if text.startswith("(?i)"):
        text, flags = text[4:], flags | re.IGNORECASE
    try:
        return re.compile(_Translation(text).result, flags)
    except (re.error, OverflowError, RecursionError) as error:  # the last one for thousands of groups inside each other
        raise Untranslatable(f"the pattern cannot be used: {error}") from None


def java_replacement(text: str, pattern: re.Pattern[str], *, is_literal_beyond: bool = False) -> Callable[[re.Match[str]], str]:
    """A function that builds the replacement of a match. Raises Untranslatable.

    `is_literal_beyond`: a reference to a group beyond those of the pattern is literal text, as in ssl.principal.mapping.rules.
    """
    if is_literal_beyond:
        text = _with_literal_references(text, pattern.groups)
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        each = text[position]
        position += 1
        if each == "\\":
            if position == len(text):
                raise Untranslatable("the replacement ends with a backslash")
            parts.append(text[position])
            position += 1
        elif each == "$":
            group, position = _reference(text, position, pattern)
            parts.append(group)
        else:
            parts.append(each)
    return lambda match: "".join(part if isinstance(part, str) else match[part] or "" for part in parts)


def java_replace_all(pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str], text: str) -> str:
    """The text with every match replaced. After an empty match Java continues with the next character; Python would search there again."""
    parts = []
    copied = position = 0
    while position <= len(text) and (match := pattern.search(text, position)) is not None:
        parts += [text[copied : match.start()], replacement(match)]
        copied = match.end()
        position = copied if match.end() > match.start() else copied + 1
    return "".join([*parts, text[copied:]])


def java_replace_first(pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str], text: str) -> str:
    """The text with its first match replaced."""
    match = pattern.search(text)
    return text if match is None else f"{text[: match.start()]}{replacement(match)}{text[match.end() :]}"


def _with_literal_references(text: str, groups: int) -> str:
    """The replacement with a backslash for each reference beyond the groups, at the places where Apache Kafka inserts them.

    It counts these places in the text before the first insertion, so that only the first reference becomes literal. The next one is an
    error of `_reference`.
    """
    if not groups:
        return text
    found = text
    for match in _BACK_REFERENCE.finditer(text):
        digits = match[1]
        if digits.startswith("0"):
            continue
        if len(digits) > _MOST_DIGITS or int(digits) > _LARGEST_INT:
            raise Untranslatable(f"the replacement has the reference ${digits}")
        while int(digits) > groups and len(digits) > 1:
            digits = digits[:-1]
        if int(digits) > groups:
            found = f"{found[: match.start()]}\\{found[match.start() :]}"
    return found


def _reference(text: str, position: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    """The group of the reference whose dollar sign is in front of `position`, and the position behind the reference."""
    if text.startswith("{", position):
        end = text.find("}", position)
        name = text[position + 1 : end]
        if end < 0 or name not in pattern.groupindex:
            raise Untranslatable(f"the pattern has no group named {name!r}")
        return pattern.groupindex[name], end + 1
    if not (digit := text[position : position + 1]).isdecimal() or not digit.isascii():
        raise Untranslatable("the replacement has a $ without a group behind it")
    group = int(digit)
    if group > pattern.groups:
        raise Untranslatable(f"the pattern has {pattern.groups} groups, but the replacement has ${group}")
    position += 1
    while (digit := text[position : position + 1]).isascii() and digit.isdecimal() and group * 10 + int(digit) <= pattern.groups:
        group = group * 10 + int(digit)
        position += 1
    return group, position


class _Translation:
    """Translates one pattern from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        parts = []
        while self._position < len(text):
            parts.append(self._next())
        self.result = "".join(parts)

    def _next(self) -> str:
        each = self._take()
        if each == "\\":
            return self._escape(in_class=False)
        if each == "[":
            return self._class()
        if each == "(":
            return self._group()
        return {".": _DOT, "$": _END}.get(each, each)

    def _take(self) -> str:
        if self._position == len(self._text):
            raise Untranslatable("the pattern ends too early")
        self._position += 1
        return self._text[self._position - 1]

    def _take_match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._position)
        if found is not None:
            self._position = found.end()
        return found

    def _group(self) -> str:
        if not self._text.startswith("?", self._position):
            return "("
        if (kind := self._take_match(_GROUP_KIND)) is not None:
            return f"({kind[0]}"
        self._take()
        if (name := self._take_match(_GROUP_NAME)) is not None:
            return f"(?P<{name[1]}>"
        raise Untranslatable("the pattern has a kind of group that is not supported, or flags that are not at its start")

    def _escape(self, *, in_class: bool) -> str:
        each = self._take()
        if not (each.isascii() and each.isalnum()):
            return re.escape(each)
        if each in _SAME_ESCAPES:
            return f"\\{each}"
        if each == "e":
            return r"\x1b"
        if each == "Q":
            literal, _, _ = self._text[self._position :].partition("\\E")
            self._position = min(self._position + len(literal) + 2, len(self._text))
            return re.escape(literal)
        if each == "p" and (name := self._take_match(_PROPERTY)) is not None and name[1] in _CLASSES:
            return _CLASSES[name[1]] if in_class else f"[{_CLASSES[name[1]]}]"
        if each in "xu":
            self._position -= 1
            if (code := self._take_match(_HEXADECIMAL)) is not None:
                return f"\\{code[0]}"
        elif not in_class:
            if each in "123456789":
                return f"\\{each}"
            if each == "k" and (name := self._take_match(_GROUP_NAME)) is not None:
                return f"(?P={name[1]})"
            if each in _OUTSIDE_CLASSES:
                return _OUTSIDE_CLASSES[each]
        raise Untranslatable(f"the pattern has the escape \\{each}, which is not supported")

    def _class(self) -> str:
        parts = ["["]
        if self._text.startswith("^", self._position):
            parts.append(self._take())
        if self._text.startswith("]", self._position):
            raise Untranslatable("the pattern has an empty class of characters")
        while (each := self._take()) != "]":
            if each == "[" or (each == "&" and self._text.startswith("&", self._position)):
                raise Untranslatable("the pattern has a class of characters inside another, which is not supported")
            # Doubled, these have a meaning in later versions of Python.
            parts.append(self._escape(in_class=True) if each == "\\" else f"\\{each}" if each in "|~" else each)
        return "".join([*parts, "]"])
