"""Text to value and back, for each type; the texts are those of Java."""

import math
import struct
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config.errors import ConfigError
from ottla.config.schema.metadata_version import METADATA_VERSIONS, full_version, is_at_least
from ottla.config.schema.types import (
    Bool,
    Class,
    Double,
    Int,
    List,
    Long,
    Password,
    PasswordType,
    Short,
    String,
    ValueType,
    java_double,
    java_int,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.9, "0.9"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (0.00001, "1.0E-5"),
        (1234567.0, "1234567.0"),
        (9999999.0, "9999999.0"),
        (10000000.0, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (2147483647.0, "2.147483647E9"),
        (-2147483647.0, "-2.147483647E9"),
        (1e100, "1.0E100"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_a_double_is_written_as_java_writes_it(value: float, text: str) -> None:
    assert java_double(value) == text


@settings(max_examples=500, deadline=None)
@given(st.binary(min_size=8, max_size=8))
def test_a_double_reads_back_from_javas_form(bits: bytes) -> None:
    (value,) = struct.unpack(">d", bits)
    text = java_double(value)
    assert Double().parse("key", text) == value or math.isnan(value)
    if math.isfinite(value) and value and not 1e-3 <= abs(value) < 1e7:
        assert 1 <= abs(float(text.split("E")[0])) < 10


@pytest.mark.parametrize(("kind", "bits"), [(Short(), 16), (Int(), 32), (Long(), 64)])
def test_an_integer_has_the_range_of_its_type(kind: Int | Long | Short, bits: int) -> None:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    assert kind.parse("key", f" {least} ") == least
    assert kind.parse("key", f"+{most}") == most
    for outside in (least - 1, most + 1):
        with pytest.raises(ConfigError, match=f"Invalid value {outside} for configuration key: Not a number of type"):
            kind.parse("key", str(outside))


def test_digits_of_any_script_are_read_as_java_reads_them() -> None:
    assert Int().parse("key", "-٣٤") == -34


@pytest.mark.parametrize("text", [" 0", "0 ", "1_0", "zero", "", "2147483648"])
def test_an_id_that_java_does_not_read_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        java_int(text)


@pytest.mark.parametrize("text", ["", " ", "1 2", "0x1", "1_000", "1.0", "²", "--1", "+"])
def test_what_java_does_not_read_as_an_integer_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Not a number of type INT"):
        Int().parse("key", text)


@pytest.mark.parametrize(("text", "value"), [("1", 1.0), (" .5 ", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("1d", 1.0), ("Infinity", math.inf)])
def test_what_java_reads_as_a_double_is_read(text: str, value: float) -> None:
    assert Double().parse("key", text) == value


@pytest.mark.parametrize("text", ["", "inf", "nan", "1e", "1_0", "one", "."])
def test_what_java_does_not_read_as_a_double_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Not a number of type DOUBLE"):
        Double().parse("key", text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ()),
        ("  ", ()),
        ("a", ("a",)),
        (" a , b,c ", ("a", "b", "c")),
        ("a,,b", ("a", "", "b")),
        ("a,", ("a", "")),
        ("a b,c", ("a b", "c")),
        ("a , ,b\t,\u2003c ,, d  e", ("a", "", "b", "c", "", "d  e")),
    ],
)
def test_a_list_is_split_at_commas(text: str, value: tuple[str, ...]) -> None:
    assert List().parse("key", text) == value


LONGEST = 32_767
"""Longest string of a request, bytes."""


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Double(), "1" * (LONGEST - 1) + "x"),
        (Double(), "1." + "1" * (LONGEST - 3) + "x"),
        (Double(), "." + "1" * (LONGEST - 2) + "x"),
        (Double(), "1e" + "1" * (LONGEST - 3) + "x"),
        (Int(), "1" * LONGEST),
        (Int(), "1" * (LONGEST - 1) + "x"),
        (List(choices=("a",)), "a" + " " * (LONGEST - 2) + "b"),
        (List(choices=("a",)), " ,".join("a" * (LONGEST // 3)) + " b"),
    ],
)
def test_a_long_text_that_is_no_value_is_refused_at_once(kind: ValueType[Any], text: str) -> None:
    """Clients choose these texts, and the event loop reads them."""
    begin = time.thread_time()
    with pytest.raises(ConfigError):
        kind.parse("key", text)
    assert time.thread_time() - begin < 1


def test_a_list_is_written_with_commas() -> None:
    assert List().render(("a", "b")) == "a,b"
    assert List().render(()) == ""


@pytest.mark.parametrize(("text", "value"), [("true", True), (" FALSE ", False), ("True", True)])
def test_a_boolean_is_read_in_any_case(text: str, value: bool) -> None:
    assert Bool().parse("key", text) is value
    assert Bool().render(value) == str(value).lower()


def test_blanks_around_a_text_do_not_count() -> None:
    assert String().parse("key", "  a b  ") == "a b"
    assert Class().parse("key", " org.example.Plugin ") == "org.example.Plugin"


def test_a_password_hides_itself() -> None:
    password = PasswordType().parse("key", " p4ss ")
    assert (password.value, repr(password), str(password)) == ("p4ss", "[hidden]", "[hidden]")
    assert password == Password("p4ss")
    assert hash(password) == hash(Password("p4ss"))
    assert password != Password("other")
    assert password != "p4ss"
    assert PasswordType().render(password) == "p4ss"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("3.9", "3.9-IV0"),
        ("3.9.1", "3.9-IV0"),
        ("3.9-IV0", "3.9-IV0"),
        ("3.7", "3.7-IV4"),
        ("4.0-IV1", "4.0-IV1"),
        ("4.0", None),
        ("0.8.2", "0.8.2"),
        ("0.8.2.1", "0.8.2"),
        ("0.10.2", "0.10.2-IV0"),
        ("0.11.0-IV1", "0.11.0-IV1"),
        ("0.11", None),
        ("1.0.1", "1.0-IV0"),
        ("3", None),
        ("", None),
        ("latest", None),
    ],
)
def test_a_version_may_be_written_short(text: str, version: str | None) -> None:
    assert full_version(text) == version


def test_versions_are_ordered_by_release() -> None:
    assert is_at_least("3.0", "3.0-IV1")
    assert not is_at_least("3.0-IV0", "3.0-IV1")
    assert is_at_least("0.10.0", "0.9.0")
    assert METADATA_VERSIONS[0] == "0.8.0"
    assert METADATA_VERSIONS[-1] == "4.0-IV1"
