"""Defines the types of configuration values: parsing, rendering and bounds.

Every key declares one of these. `parse` takes the text of a file, an environment variable or an AlterConfigs request
and raises ConfigValueError. `render` gives the text for DescribeConfigs in Java's form (`true`, `1.0E9`), because
clients compare it.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

from ottla.config.errors import ConfigValueError

T = TypeVar("T")

# Possessive repetitions: clients choose these texts, and backtracking over a long one that fits nowhere would take minutes.
COMMA = re.compile(r"(?:(?<!\s)\s++)?,\s*+")
"""A comma with all whitespace around it."""
_INTEGER = re.compile(r"[+-]?\d+")  # digits of any script, as in Java
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][+-]?[0-9]++)?[fFdD]?)")


def java_int(text: str) -> int:
    """The number that Java's Integer.parseInt reads. Raises ValueError, unlike int() also for whitespace, underscores
    and too many bits."""
    if not _INTEGER.fullmatch(text) or not -(1 << 31) <= int(text) < 1 << 31:
        raise ValueError(text)
    return int(text)


def _whole_number(digits: str) -> int | None:
    """The number; None for a text that is none, or that has more digits than Python reads."""
    try:
        return int(digits) if _INTEGER.fullmatch(digits) else None
    except ValueError:
        return None


class ConfigKind(IntEnum):
    """The type of a key, with the numbers of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Password:
    """A secret. Only `value` has its text, so that no log line or error shows it by accident."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return "[hidden]"


class ValueType(ABC, Generic[T]):
    """The form of a key's values, and which of them are allowed."""

    kind: ConfigKind

    @abstractmethod
    def parse(self, name: str, text: str) -> T:
        """The value of `text`. Raises ConfigValueError, naming the key."""

    def render(self, value: T) -> str:
        """The text for DescribeConfigs."""
        return str(value)

    def bounds(self) -> str | None:
        """The allowed values in Kafka's notation, or None when every value of the type is allowed."""
        return None


class Bool(ValueType[bool]):
    """`true` or `false`, in any case."""

    kind = ConfigKind.BOOLEAN

    def parse(self, name: str, text: str) -> bool:
        """See ValueType."""
        word = text.strip().lower()
        if word not in {"true", "false"}:
            raise ConfigValueError(name, text, "Expected value to be either true or false")
        return word == "true"

    def render(self, value: bool) -> str:
        """See ValueType."""
        return "true" if value else "false"


class _Integer(ValueType[int]):
    bits: int

    def __init__(
        self, minimum: int | None = None, maximum: int | None = None, *, or_else: int | None = None, described_as: str | None = None
    ) -> None:
        """At least `minimum`, at most `maximum`, or exactly `or_else`, which means a default that is chosen elsewhere."""
        self.minimum = minimum
        self.maximum = maximum
        self.or_else = or_else
        self.described_as = described_as

    def parse(self, name: str, text: str) -> int:
        """See ValueType."""
        value = _whole_number(text.strip())
        if value is None or not -(1 << self.bits - 1) <= value < 1 << self.bits - 1:
            raise ConfigValueError(name, text, f"Not a number of type {self.kind.name}")
        if self.or_else is not None:
            self._check_or_else(name, value)
        else:
            _check_range(name, value, value, self.minimum, self.maximum)
        return value

    def bounds(self) -> str | None:
        """See ValueType."""
        if self.described_as is not None:
            return self.described_as
        text = _range_text(self.minimum, self.maximum)
        return text if self.or_else is None else f"{text} or {self.or_else}"

    def _check_or_else(self, name: str, value: int) -> None:
        inside = (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)
        if value == self.or_else or inside:
            return
        if self.maximum is None:
            raise ConfigValueError(name, value, f"Value can be {self.or_else} or greater than {(self.minimum or 0) - 1}")
        raise ConfigValueError(name, value, f"Value must be between {self.minimum} and {self.maximum} or equal to {self.or_else}")


class Short(_Integer):
    """A number of 16 bits."""

    kind = ConfigKind.SHORT
    bits = 16


class Int(_Integer):
    """A number of 32 bits."""

    kind = ConfigKind.INT
    bits = 32


class Long(_Integer):
    """A number of 64 bits."""

    kind = ConfigKind.LONG
    bits = 64


class Double(ValueType[float]):
    """A number with a fraction."""

    kind = ConfigKind.DOUBLE

    def __init__(self, minimum: float | None = None, maximum: float | None = None) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def parse(self, name: str, text: str) -> float:
        """See ValueType."""
        digits = text.strip()
        if not _DOUBLE.fullmatch(digits):
            raise ConfigValueError(name, text, "Not a number of type DOUBLE")
        value = float(digits.rstrip("fFdD"))
        _check_range(name, value, java_double(value), self.minimum, self.maximum)
        return value

    def render(self, value: float) -> str:
        """See ValueType."""
        return java_double(value)

    def bounds(self) -> str | None:
        """See ValueType."""
        return _range_text(self.minimum, self.maximum)


@dataclass(frozen=True)
class String(ValueType[str]):
    """Text without surrounding whitespace."""

    choices: tuple[str, ...] = ()
    any_case: bool = False
    non_empty: bool = False
    described_as: str | None = None
    check: Callable[[str, str], None] | None = None
    kind = ConfigKind.STRING

    def parse(self, name: str, text: str) -> str:
        """See ValueType."""
        value = text.strip()
        if self.check is not None:
            self.check(name, value)
        if self.non_empty and not value:
            raise ConfigValueError(name, value, "String must be non-empty")
        if self.choices and not self.any_case:
            check_choice(name, value, self.choices)
        if self.any_case and value.upper() not in self.choices:
            raise ConfigValueError(name, value, f"String must be one of (case insensitive): {', '.join(self.choices)}")
        return value

    def bounds(self) -> str | None:
        """See ValueType."""
        if self.described_as is not None:
            return self.described_as
        if self.choices:
            return ("(case insensitive) " if self.any_case else "") + _choices_text(self.choices)
        return "non-empty string" if self.non_empty else None


@dataclass(frozen=True)
class List(ValueType[tuple[str, ...]]):
    """Comma-separated texts; an empty text is the empty list."""

    choices: tuple[str, ...] = ()
    any_case: bool = False
    described_as: str | None = None
    check: Callable[[str, tuple[str, ...]], None] | None = None
    kind = ConfigKind.LIST

    def parse(self, name: str, text: str) -> tuple[str, ...]:
        """See ValueType."""
        trimmed = text.strip()
        values = tuple(COMMA.split(trimmed)) if trimmed else ()
        if self.check is not None:
            self.check(name, values)
        if self.choices:
            for value in values:
                check_choice(name, value.lower() if self.any_case else value, self.choices)
        return values

    def render(self, value: tuple[str, ...]) -> str:
        """See ValueType."""
        return ",".join(value)

    def bounds(self) -> str | None:
        """See ValueType."""
        return self.described_as or (_choices_text(self.choices) if self.choices else None)


class PasswordType(ValueType[Password]):
    """A secret; DescribeConfigs returns null for it."""

    kind = ConfigKind.PASSWORD

    def parse(self, name: str, text: str) -> Password:
        """See ValueType."""
        return Password(text.strip())

    def render(self, value: Password) -> str:
        """See ValueType. Returns the secret itself: callers check `Key.sensitive` first."""
        return value.value


class Class(ValueType[str]):
    """The name of a class. Java loads it; here a name is only compared with known ones."""

    kind = ConfigKind.CLASS

    def parse(self, name: str, text: str) -> str:
        """See ValueType."""
        return text.strip()


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises ConfigValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ConfigValueError(name, value, f"String must be one of: {', '.join(choices)}")


def java_double(value: float) -> str:
    """`value` as Java prints a double: without exponent between 1e-3 and 1e7, otherwise with one."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    mantissa, exponent = f"{value!r}".split("e") if "e" in repr(value) else _scientific(value)
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"


def _scientific(value: float) -> tuple[str, str]:
    # repr has the shortest digits that parse to the same double; only the point moves.
    sign, digits = ("-", repr(-value)) if value < 0 else ("", repr(value))
    whole, _, fraction = digits.partition(".")
    exponent = len(whole) - 1 if whole != "0" else -(len(fraction) - len(fraction.lstrip("0")) + 1)
    significant = (whole + fraction).strip("0") if whole == "0" else (whole + fraction).rstrip("0")
    return f"{sign}{significant[0]}.{significant[1:] or '0'}", str(exponent)


def _check_range(name: str, value: float, shown: object, minimum: float | None, maximum: float | None) -> None:
    if minimum is not None and value < minimum:
        raise ConfigValueError(name, shown, f"Value must be at least {minimum}")
    if maximum is not None and value > maximum:
        raise ConfigValueError(name, shown, f"Value must be no more than {maximum}")


def _range_text(minimum: float | None, maximum: float | None) -> str | None:
    if minimum is None and maximum is None:
        return None
    if maximum is None:
        return f"[{minimum},...]"
    return f"[{'' if minimum is None else f'{minimum},'}...,{maximum}]"


def _choices_text(choices: tuple[str, ...]) -> str:
    return f"[{', '.join(choices)}]"
