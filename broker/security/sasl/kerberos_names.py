"""Maps Kerberos principals to short names by sasl.kerberos.principal.to.local.rules. Kafka's KerberosShortNamer.

A rule is `DEFAULT`, which takes the first component of principals of the default realm, or
`RULE:[count:format](pattern)s/from/to/g/L`. Such a rule is for principals with this count of components. In its format, `$0` stands for the
realm, and `$1` and `$2` for the components. The pattern has to match the result, in which `from` is then replaced; `L` and `U` convert the
case. The first rule that fits decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.broker.security.tls.java_patterns import Untranslatable, java_pattern, java_replace_all, java_replace_first, java_replacement
from ottla.config.errors import ConfigError

_PRINCIPAL: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(r"RULE:\[(\d*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU])?", re.ASCII)
_PARAMETER: Final = re.compile(r"([^$]*)(?:\$(\d*))?", re.ASCII)
_NOT_SIMPLE: Final = re.compile("[/@]")
_LARGEST_INT: Final = 2**31 - 1
_CASES: Final[dict[str | None, Callable[[str], str]]] = {None: str, "L": str.lower, "U": str.upper}


class NoMatchingRule(Exception):
    """No rule makes a short name of a principal, so the client's authentication fails."""


class MalformedPrincipal(NoMatchingRule):
    """A principal has more than two components."""


class _Substitution(NamedTuple):
    """The part `s/from/to/` of a rule."""

    pattern: re.Pattern[str]
    replacement: Callable[[re.Match[str]], str]
    is_repeated: bool

    def apply(self, text: str) -> str:
        replace = java_replace_all if self.is_repeated else java_replace_first
        return replace(self.pattern, self.replacement, text)


class _Rule:
    """One rule with a format."""

    __slots__ = ("_case", "_count", "_format", "_pattern", "_substitution", "_text")

    def __init__(self, parts: re.Match[str]) -> None:
        """Raises ConfigError, and Untranslatable for a pattern or replacement."""
        count, text, pattern, replaced, replacement, repeated, case = parts.groups()
        if not count or int(count) > _LARGEST_INT:
            raise ConfigError("the rule has no count of components")
        self._text = parts[0]
        self._count = int(count)
        self._format = _parts_of(text, self._count)
        self._pattern = None if pattern is None else java_pattern(pattern)
        self._substitution = None if replaced is None else _substitution(replaced, replacement, is_repeated=repeated is not None)
        self._case = _CASES[case]

    def apply(self, realm: str, components: Sequence[str]) -> str | None:
        """The short name; None if the rule is for other principals. Raises NoMatchingRule for a result that is no short name."""
        if len(components) != self._count:
            return None
        parameters = (realm, *components)
        base = "".join(part if isinstance(part, str) else parameters[part] for part in self._format)
        if self._pattern is not None and self._pattern.fullmatch(base) is None:
            return None
        found = base if self._substitution is None else self._substitution.apply(base)
        if _NOT_SIMPLE.search(found):
            raise NoMatchingRule(f"{self._text} makes {found}, which is no short name")
        return self._case(found)


class PrincipalToLocalRules:
    """The rules of one listener."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Raises ConfigError for a rule that cannot be parsed or that has no equivalent in Python."""
        self._default_realm = default_realm
        self._text = ",".join(rules)
        self._rules = [_rule_of(text) for text in rules]

    def name_of(self, principal: str) -> str:
        """The short name of `name@REALM` or `name/instance@REALM`. Raises NoMatchingRule."""
        parsed = _PRINCIPAL.fullmatch(principal)
        if parsed is None:
            if "@" in principal:
                raise MalformedPrincipal(f"Malformed Kerberos name: {principal}")
            return principal
        name, instance, realm = parsed.groups()
        components = (name,) if instance is None else (name, instance)
        for rule in self._rules:
            found = self._by_default(realm, name) if rule is None else rule.apply(realm, components)
            if found is not None:
                return found
        raise NoMatchingRule(f"no rule of {self._text} applies to {principal}")

    def _by_default(self, realm: str, name: str) -> str | None:
        return name if realm == self._default_realm else None


def _rule_of(text: str) -> _Rule | None:
    """The rule; None stands for DEFAULT. Raises ConfigError."""
    if text == "DEFAULT":
        return None
    parts = _RULE.fullmatch(text)
    if parts is None:
        raise ConfigError(f"{text!r} is no rule; expected DEFAULT or RULE:[count:format](pattern)s/from/to/g/L")
    try:
        return _Rule(parts)
    except (ConfigError, Untranslatable) as reason:
        raise ConfigError(f"{text}: {reason}") from None


def _parts_of(text: str, count: int) -> list[str | int]:
    """The texts of a format and the numbers of its parameters. Raises ConfigError for a parameter beyond the components."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        match = _PARAMETER.match(text, position)
        assert match is not None, "it matches the empty text, too"
        position = match.end()
        parts.append(match[1])
        if match[2] is not None:
            if not match[2] or int(match[2]) > count:
                raise ConfigError(f"the format has the parameter ${match[2]}; those of {count} components are $0 to ${count}")
            parts.append(int(match[2]))
    return parts


def _substitution(replaced: str, replacement: str, *, is_repeated: bool) -> _Substitution:
    pattern = java_pattern(replaced)
    return _Substitution(pattern, java_replacement(replacement, pattern), is_repeated)
