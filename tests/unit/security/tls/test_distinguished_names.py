"""The texts are those of X500Principal.getName of Java 17 for the same bytes."""

from __future__ import annotations

import pytest

from ottla.broker.security.tls.der import MAX_IDENTIFIER_BYTES, MalformedDer, object_identifier
from ottla.broker.security.tls.distinguished_names import alternative_names_of, name_of, subject_of
from tests.support.certificates import Identity

ORGANIZATION = "310a3008060355040a0c0178"


def common_name(value: str | bytes, tag: int = 0x0C) -> str:
    """A relative name in DER, as hexadecimal digits."""
    data = value.encode() if isinstance(value, str) else value
    attribute = bytes([6, 3, 0x55, 4, 3, tag, len(data)]) + data
    return bytes([0x31, len(attribute) + 2, 0x30, len(attribute), *attribute]).hex()


def sequence(*parts: str) -> bytes:
    content = bytes.fromhex("".join(parts))
    return bytes([0x30, len(content)]) + content


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        ("", ""),
        ("  ", "\\ \\ "),
        (" a  ", "\\ a\\ \\ "),
        ("\ra b\r ", "\\\ra b\\\r\\ "),
        ("a\nb", "a\nb"),
        ('a,b=c+d<e>f#g;h"i\\j', 'a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j'),
        ("#x", "\\#x"),
        ("x\0y", "x\\00y"),
        ("ü€😀", "ü€😀"),
        ("\t a", "\t a"),
        ("/=:?'()-.", "/\\=:?'()-."),
    ],
)
def test_values_are_escaped_as_by_java(value: str, text: str) -> None:
    assert name_of(sequence(common_name(value), ORGANIZATION)) == f"O=x,CN={text}"


@pytest.mark.parametrize(
    ("tag", "text"), [(0x13, "ab"), (0x14, "ab"), (0x16, "ab"), (0x1B, "ab"), (0x12, "#12026162"), (0x1A, "#1a026162")]
)
def test_some_kinds_of_text_are_hexadecimal_digits(tag: int, text: str) -> None:
    assert name_of(sequence(common_name(b"ab", tag))) == f"CN={text}"


def test_wide_characters_are_read_as_utf_8() -> None:
    assert name_of(sequence(common_name("ab".encode("utf-16-be"), 0x1E))) == "CN=\\00a\\00b"


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        ("06035504060c0176", "C=v"),
        ("06035504090c0176", "STREET=v"),
        ("060a0992268993f22c6401010c0176", "UID=v"),
        ("060a0992268993f22c6401190c0176", "DC=v"),
        ("06035504050c0176", "2.5.4.5=#0c0176"),
        ("06092a864886f70d0109010c0176", "1.2.840.113549.1.9.1=#0c0176"),
        ("06038837030c0176", "2.999.3=#0c0176"),
    ],
)
def test_only_attributes_of_rfc_2253_have_names(attribute: str, text: str) -> None:
    size = len(attribute) // 2
    assert name_of(sequence(f"31{size + 2:02x}30{size:02x}{attribute}")) == text


def test_attributes_of_one_level_keep_their_order_and_levels_are_reversed() -> None:
    several = bytes.fromhex("302c31143008060355040a0c017a300806035504030c016131143008060355040313016230080603550403" + "0c0161")
    assert name_of(several) == "CN=b+CN=a,O=z+CN=a"
    assert name_of(sequence()) == ""


def test_the_subject_of_a_certificate_is_found() -> None:
    assert subject_of(Identity("CN=broker\\, 1,OU=x,O=Acme,C=DE").der) == "CN=broker\\, 1,OU=x,O=Acme,C=DE"


def test_the_alternative_names_of_a_certificate_are_found() -> None:
    assert alternative_names_of(Identity("CN=a").der) == {b"\x82\x09localhost", b"\x87\x04\x7f\x00\x00\x01"}


def test_a_damaged_certificate_is_an_error_at_every_length() -> None:
    certificate = Identity("CN=a").der
    for length in range(0, len(certificate), 7):
        with pytest.raises(MalformedDer):
            subject_of(certificate[:length])


def test_an_object_identifier_is_as_long_as_any_in_use_and_no_longer() -> None:
    assert object_identifier(bytes([0x2A, *[0xFF] * (MAX_IDENTIFIER_BYTES - 2), 0x7F])).startswith("1.2.")
    with pytest.raises(MalformedDer, match="an object identifier is longer"):
        object_identifier(bytes([0x2A, *[0xFF] * 100_000, 0x7F]))
