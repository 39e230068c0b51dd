"""Writes the subject of a certificate as text, character by character as Java's X500Principal.getName does (RFC 2253).

ACLs and mapping rules contain this text, so another order of attributes or another escape would lock a client out.
"""

from typing import Final

from ottla.broker.security.tls.der import Element, MalformedDer, element, object_identifier

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 names. Java writes all others as numbers, with a value in hexadecimal digits."""
_TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads the bytes of all of them as UTF-8."""
_ESCAPED: Final = ',=+<>#;"\\'
_BLANKS: Final = " \r"
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_ALTERNATIVE_NAMES: Final = "2.5.29.17"


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER. Raises MalformedDer."""
    fields = element(certificate).part(0).parts()
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 5:
        raise MalformedDer("a certificate has no subject")
    return name_of(fields[4].encoded)


def alternative_names_of(certificate: bytes) -> frozenset[bytes]:
    """The subject alternative names of a certificate, each in DER. Raises MalformedDer."""
    for field in element(certificate).part(0).parts():
        if field.tag == _EXTENSIONS:
            for extension in field.part(0).parts():
                if object_identifier(extension.part(0).content) == _ALTERNATIVE_NAMES:
                    return frozenset(each.encoded for each in element(extension.part(-1).content).parts())
    return frozenset()


def name_of(name: bytes) -> str:
    """The text of a distinguished name in DER; empty for one without attributes. Raises MalformedDer."""
    relative = ["+".join(map(_attribute, attributes.parts())) for attributes in element(name).parts()]
    return ",".join(reversed(relative))


def _attribute(attribute: Element) -> str:
    parts = attribute.parts()
    if len(parts) != 2:
        raise MalformedDer("an attribute of a name is no pair")
    kind, value = parts
    number = object_identifier(kind.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXT_TAGS:
        return f"{keyword or number}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    text = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text)
    kept = text.strip(_BLANKS)
    if not kept:
        return "".join(f"\\{each}" for each in text)
    before, after = text[: text.index(kept[0])], text[len(text.rstrip(_BLANKS)) :]
    return "".join(f"\\{each}" for each in before) + kept + "".join(f"\\{each}" for each in after)
