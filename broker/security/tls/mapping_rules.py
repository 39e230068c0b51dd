"""Maps distinguished names to short names by ssl.principal.mapping.rules (KIP-371).

A rule is `DEFAULT`, which keeps the name, or `RULE:pattern/replacement/[LU]`. The pattern is a regular expression of Java that has to match
the whole name; L and U convert the result to lower or upper case. The first rule that matches decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from ottla.broker.security.tls.java_patterns import Untranslatable, java_pattern, java_replace_all, java_replacement
from ottla.config.errors import ConfigError

NAME: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(r"RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)|DEFAULT|", re.DOTALL)
_END: Final = re.compile(r"\s*(?:,\s*|\Z)")
_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


class NoMatchingRule(Exception):
    """No rule matches the name of a client, so its authentication fails."""


class _Rule:
    """One rule with a pattern."""

    __slots__ = ("_case", "_pattern", "_replacement")

    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        self._pattern = java_pattern(pattern)
        self._replacement = java_replacement(replacement, self._pattern, is_literal_beyond=True)
        self._case = _CASES[case]

    def apply(self, name: str) -> str | None:
        """The short name; None when the pattern does not match."""
        if self._pattern.fullmatch(name) is None:
            return None
        # Java replaces every occurrence in the name, of which the whole name is only the usual one.
        return self._case(java_replace_all(self._pattern, self._replacement, name))


class MappingRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError for a rule that cannot be parsed or that has no equivalent in Python."""
        self._text = text
        self._rules = list(_rules_of(text.strip()))

    def name_of(self, distinguished_name: str) -> str:
        """The name of the principal. Raises NoMatchingRule."""
        for rule in self._rules:
            found = distinguished_name if rule is None else rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoMatchingRule(f"no rule of {NAME}={self._text} matches {distinguished_name}")


def _rules_of(text: str) -> Iterator[_Rule | None]:
    """The rules in their order; None stands for DEFAULT. Empty rules are left out, as in Apache Kafka."""
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        end = None if found is None else _END.match(text, found.end())
        if found is None or end is None:
            raise ConfigError(f"{NAME}={text}: {text[position:]!r} is no rule; expected DEFAULT or RULE:pattern/replacement/[LU]")
        if found["pattern"] is not None:
            try:
                yield _Rule(found["pattern"], found["replacement"], found["case"])
            except Untranslatable as reason:
                raise ConfigError(f"{NAME}={text}: {found[0]}: {reason}") from None
        elif found[0]:
            yield None
        position = end.end()
