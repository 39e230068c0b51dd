"""Parses JAAS configurations: the value of `sasl.jaas.config`, and files with sections.

The tokens are those of Java's `StreamTokenizer`, as Kafka's JaasConfig sets it up for `sasl.jaas.config`, and Java's ConfigFile for a file.
No error text holds a value, because values are secrets. A value with a blank or a quote that is not quoted itself comes as several tokens,
so an error repeats only a name that a login module knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ottla.config.errors import JaasError

FLAGS: Final = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
ZOOKEEPER_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
MODULES: Final = frozenset({PLAIN_MODULE, SCRAM_MODULE, OAUTHBEARER_MODULE, KERBEROS_MODULE, ZOOKEEPER_MODULE})
"""The login modules that a configuration may name."""

_OPTION: Final = re.compile(
    r"username|password|tokenauth|principal|serviceName|keyTab|useKeyTab|storeKey|ticketCache|useTicketCache"
    r"|user_[\w.-]+|unsecured(?:Login|Validator)\w+|ssl\.[\w.]+"
)
"""Fits the options of these modules."""
_HIDDEN: Final = "[hidden]"

_WORDS_OF_LINES: Final = "-_$"
_WORDS_OF_FILES: Final = "-_$*"
"""Characters of words, beside letters, digits and dots."""
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_END: Final = ""
_AFTER_END: Final = "\uffff"
"""Java's cast of the end of a text to a character; a backslash at the end stands for it."""


class LoginModule(NamedTuple):
    """One entry of a JAAS configuration."""

    name: str
    flag: str
    options: Mapping[str, str]


class _Token(NamedTuple):
    """A token: `text` of a word or a quoted string; otherwise None, and `kind` is the character, "number", or empty at the end."""

    kind: str
    text: str | None = None


def parse_jaas(text: str) -> list[LoginModule]:
    """The entries of `module flag key=value ...;`. Raises JaasError, also for an unknown login module."""
    tokens = _tokens(text, _WORDS_OF_LINES)
    found = []
    while (token := next(tokens)).kind != _END:
        found.append(_entry(token, tokens))
    if not found:
        raise JaasError("Login module not specified in JAAS config")
    check_modules(found)
    return found


def parse_jaas_file(text: str) -> dict[str, list[LoginModule]]:
    """The entries of each section `name { module flag key=value ...; ... };`, as Java's ConfigFile reads them. Raises JaasError.

    The file may have sections for other programs, so `check_modules` is left to the reader of a section.
    """
    tokens = _tokens(text, _WORDS_OF_FILES)
    sections: dict[str | None, list[LoginModule]] = {}
    while (token := next(tokens)).kind != _END:
        name = token.text  # None for a number or a sign: Java accepts such a section, but it has no name
        section = "a section without a name" if name is None else f"the section {name}"
        if next(tokens).kind != "{":
            raise JaasError("a section of a JAAS file is not of the form NAME { ... };")
        entries = []
        while (token := next(tokens)).kind != "}":
            entries.append(_entry_of_file(token, tokens, section))
        if next(tokens).kind != ";":
            raise JaasError(f"{section} of the JAAS file is not terminated by semi-colon")
        if name in sections:
            raise JaasError(f"the JAAS file has {section} twice")
        sections[name] = entries
    return {name: entries for name, entries in sections.items() if name is not None}


def check_modules(modules: Iterable[LoginModule]) -> None:
    """Raises JaasError for a login module that this server does not have."""
    for each in modules:
        if each.name not in MODULES:
            raise JaasError(f"the login module {each.name} is not supported; use one of {', '.join(sorted(MODULES))}")


def _entry_of_file(first: _Token, tokens: Iterator[_Token], section: str) -> LoginModule:
    """The entry whose first token was read already. `section` names the place in errors."""
    name = _word(first, f"the name of a login module in {section}")
    flag = _word(next(tokens), f"the control flag of a login module in {section}").upper()
    if not name:
        raise JaasError(f"a login module in {section} of the JAAS file has no name")
    if flag not in FLAGS:
        raise JaasError(f"a login module in {section} of the JAAS file has an invalid control flag; use one of {', '.join(sorted(FLAGS))}")
    options: dict[str, str] = {}
    while (token := next(tokens)).kind != ";":
        key = _word(token, f"an option or a semi-colon in {section}")
        if next(tokens).kind != "=":
            raise JaasError(f"an option in {section} of the JAAS file has no value")
        shown = _shown(key)
        options[key] = _expanded(_word(next(tokens), f"the value of the option {shown} in {section}"), shown)
    return LoginModule(name, flag, options)


def _word(token: _Token, expected: str) -> str:
    """The text of a word or of a string in double quotes; ConfigFile takes no single quotes, nor numbers."""
    if token.text is None or token.kind not in ("word", '"'):
        raise JaasError(f"expected {expected} of the JAAS file, as a word or in double quotes")
    return token.text


def _shown(option: str) -> str:
    """The name of an option, for an error."""
    return option if _OPTION.fullmatch(option) else _HIDDEN


def _expanded(value: str, key: str) -> str:
    """The value as Java's PropertyExpander leaves it: `${/}` is a slash, `${{...}}` stays. Raises JaasError for properties of Java."""
    found = []
    position = 0
    while (start := value.find("${", position)) >= 0:
        found.append(value[position:start])
        is_kept = value.startswith("{", start + 2)
        end = value.find("}}" if is_kept else "}", start + 2)
        if end < 0 or (is_kept and end + 2 == len(value)):
            return "".join(found) + value[start:]
        position = end + (2 if is_kept else 1)
        if is_kept:
            found.append(value[start:position])
        elif value[start + 2 : end] == "/":
            found.append("/")
        else:
            raise JaasError(f"the value of the option {key} has ${{...}}, which Java replaces by a system property; write the value itself")
    return "".join(found) + value[position:]


def _entry(first: _Token, tokens: Iterator[_Token]) -> LoginModule:
    """The entry whose first token was read already."""
    flag = next(tokens)
    if flag.kind == _END:
        raise JaasError("Login module control flag not specified in JAAS config")
    if flag.text is None:
        raise JaasError("Login module control flag is not available in the JAAS config")
    if flag.text.upper() not in FLAGS:
        raise JaasError(f"Invalid login module control flag '{flag.text if first.text in MODULES else _HIDDEN}' in JAAS config")
    options: dict[str, str] = {}
    while (token := next(tokens)).kind not in (_END, ";"):
        separator = next(tokens)
        value = next(tokens) if separator.kind == "=" else separator
        if separator.kind != "=" or value.text is None:
            raise JaasError(f"Value not specified for key '{'null' if token.text is None else _shown(token.text)}' in JAAS config")
        if token.text is not None:
            options[token.text] = value.text
    if token.kind == _END:
        raise JaasError("JAAS config entry not terminated by semi-colon")
    if not first.text:
        raise JaasError("Login module not specified in JAAS config")
    return LoginModule(first.text, flag.text.upper(), options)


def _tokens(text: str, words: str) -> Iterator[_Token]:
    """The tokens of Java's StreamTokenizer; endless, since the end repeats. `words` are the signs that begin words."""
    position = 0
    while True:
        position, token = _next_token(text, position, words)
        if token is not None:
            yield token


def _next_token(text: str, position: int, words: str) -> tuple[int, _Token | None]:
    """The token at `position` and the position after it; None for space and comments."""
    char = text[position : position + 1]
    if char == "":
        return position, _Token(_END)
    if char <= " ":
        return position + 1, None
    if char == "/":
        return _after_comment(text, position), None
    if char in "0123456789.-":
        return _number(text, position)
    if char in "\"'":
        return _quoted(text, position)
    if _is_word(char, words):
        end = position + 1
        while end < len(text) and (_is_word(text[end], words) or text[end] in "0123456789."):
            end += 1
        return end, _Token("word", text[position:end])
    return position + 1, _Token(char)


def _is_word(char: str, words: str) -> bool:
    return (char.isascii() and char.isalpha()) or char in words or char >= "\xa0"


def _after_comment(text: str, position: int) -> int:
    """The end of a comment. A single slash begins one, too, as by StreamTokenizer's default."""
    if text.startswith("/*", position):
        end = text.find("*/", position + 2)
        return len(text) if end < 0 else end + 2
    position += 2  # the character after a single slash belongs to the comment, even if it ends the line
    while position < len(text) and text[position] not in "\r\n":
        position += 1
    return min(position, len(text))


def _number(text: str, position: int) -> tuple[int, _Token]:
    """A number, whose value Kafka never uses; or a minus without digits."""
    end = position
    if text[end] == "-":
        end += 1
        if text[end : end + 1] not in tuple("0123456789."):
            return end, _Token("-")
    has_dot = False
    while end < len(text) and (text[end] in "0123456789" or (text[end] == "." and not has_dot)):
        has_dot |= text[end] == "."
        end += 1
    return end, _Token("number")


def _quoted(text: str, position: int) -> tuple[int, _Token]:
    """A quoted string, which ends at the quote or at the end of the line."""
    quote = text[position]
    position += 1
    found = []
    while position < len(text) and text[position] not in (quote, "\n", "\r"):
        char = text[position]
        position += 1
        if char == "\\":
            position, char = _escaped(text, position)
        found.append(char)
    return position + (text[position : position + 1] == quote), _Token(quote, "".join(found))


def _escaped(text: str, position: int) -> tuple[int, str]:
    """The character after a backslash: up to three octal digits, a letter, or itself."""
    char = text[position : position + 1]
    if char == "":
        return position, _AFTER_END
    if char not in "01234567":
        return position + 1, _ESCAPES.get(char, char)
    end = position + 1
    longest = position + (3 if char <= "3" else 2)
    while end < min(longest, len(text)) and text[end] in "01234567":
        end += 1
    return end, chr(int(text[position:end], 8))
