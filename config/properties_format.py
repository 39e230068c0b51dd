"""Parses the properties files of Java."""

import re
from collections.abc import Iterator

from ottla.config.errors import ConfigError

_NATURAL_LINE = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\f"
_SEPARATORS = "=:"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE_ESCAPE = re.compile(r"[0-9a-fA-F]{4}")


def decode(file: bytes) -> str:
    """The text of a properties file: UTF-8 if it is valid, otherwise ISO-8859-1, which Java expects. Raises ConfigError for no text."""
    if b"\0" in file:
        raise ConfigError("a byte is zero, as in UTF-16 and in binary files; properties are text in UTF-8 or ISO-8859-1")
    try:
        return file.decode("utf-8-sig")
    except UnicodeDecodeError:
        return file.decode("iso-8859-1")


def parse_properties(text: str) -> dict[str, str]:
    """The properties of a file in Java's format; a key that repeats has its last value. Raises ConfigError for a broken \\u escape."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end, value_start = _split(line)
        try:
            properties[_unescape(line[:key_end])] = _unescape(line[value_start:])
        except ValueError:
            # Without the value, which may be a password.
            raise ConfigError(f"Malformed \\uxxxx encoding in the property that begins in line {number}: {line[:key_end]}") from None
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined, without comments and blank lines, each with the number of its first natural
    line."""
    lines = _NATURAL_LINE.split(text)
    # At the end of the text a lone backslash is an empty property; elsewhere it is nothing.
    last = len(lines) - (not lines[-1])
    pending = ""
    first = 0
    for number, natural in enumerate(lines, 1):
        line = natural.lstrip(_BLANK)
        if not pending:
            if not line or line[0] in "#!":
                continue
            first = number
        pending += line
        # An odd number of trailing backslashes: the last one is not escaped and joins the next line.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = pending[:-1]
            if number < last:
                continue
        yield first, pending
        pending = ""
    if pending:
        yield first, pending


def _split(line: str) -> tuple[int, int]:
    """The end of the key and the start of the value."""
    end = 0
    while end < len(line) and line[end] not in _SEPARATORS + _BLANK:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    start = end
    while start < len(line) and line[start] in _BLANK:
        start += 1
    if start < len(line) and line[start] in _SEPARATORS:
        start += 1
        while start < len(line) and line[start] in _BLANK:
            start += 1
    return end, start


def _unescape(text: str) -> str:
    r"""`text` without its backslashes. Raises ValueError for \u without four hexadecimal digits."""
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            char = text[position]
            position += 1
            if char == "u":
                digits = _UNICODE_ESCAPE.match(text, position)
                if digits is None:
                    raise ValueError(text)
                char = chr(int(digits[0], 16))
                position += 4
            else:
                char = _ESCAPES.get(char, char)
        elif char == "\\":
            continue
        out.append(char)
    # Two \u escapes may be the surrogates of one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
