"""Parsers of Apache Kafka and Java read generated JAAS texts and files, distinguished names and rules for names, and find what we find."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import NamedTuple

import pytest

from ottla.broker.security.sasl import kerberos_names
from ottla.broker.security.tls.distinguished_names import name_of
from ottla.broker.security.tls.mapping_rules import MappingRules, NoMatchingRule
from ottla.config.errors import ConfigError, JaasError
from ottla.config.jaas import MODULES, LoginModule, parse_jaas, parse_jaas_file
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.security_judge import NO_RULE, Verdict, encoded, verdicts

pytestmark = needs_apache_kafka

CASES = 2000
SEED = 26
NO_TEXT = "null"
"""The reason of a refusal by a class of Java itself."""

JAAS_PIECES = (
    *sorted(MODULES), "required", "Requisite", "SUFFICIENT", "optional", "sometimes", " ", " ", " ", "\n",
    "\t", ";", ";", "=", "=", "a", "b", "user_x", "a-b", "$c", "d.e", "5", "-5", "-", "-b", ".", "1.2.3", '"', "'", '"x y"', "'z'",
    '"\\"q\\""', '"\\101\\12\\400\\7x"', '"\\n\\t\\v\\z"',
    "\\", "// rest\n", "/* inner */", "/*", "/", "{", "}", ",", "\u00e9", "\u0085", "\u00a0", "\U0001f511", "\uffff", "\r", "\0", "\x7f",
)  # fmt: skip


def jaas_texts(chance: random.Random) -> list[str]:
    """Random pieces, and entries in which a few pieces are out of place."""
    module = sorted(MODULES)[0]
    found = []
    for number in range(CASES):
        pieces = [chance.choice(JAAS_PIECES) for _ in range(chance.randrange(12))]
        if number % 3:
            options = [f"{chance.choice('abc')}={chance.choice(JAAS_PIECES)}" for _ in range(chance.randrange(3))]
            pieces = [f"{module} required ", *options, *pieces[: chance.randrange(3)], ";"]
        found.append(chance.choice(("", " ")).join(pieces))
    return found


def lines_of(entries: Iterable[LoginModule]) -> list[str]:
    """As the judge writes them."""
    lines = []
    for entry in entries:
        lines.append(f"{encoded(entry.name)} {entry.flag}")
        lines += sorted(f"{encoded(name)}={encoded(value)}" for name, value in entry.options.items())
    return lines


def ours_of_jaas(text: str) -> Verdict:
    try:
        return Verdict(False, "\n".join(lines_of(parse_jaas(text))))
    except JaasError as reason:
        return Verdict(True, str(reason))


FILE_VALUES = (
    "word", "b-c_d$e.5*", "*", '"a b"', '""', "'single'", "5", "-5", "-b", '"\\101\\n\\z"', '"\u00e9\U0001f511"', "", "b c",
    '"${/}"', '"x${/}y${/}"', '"${{a}}"', '"${{a}} b"', '"${{a} b"', '"${"', '"$"', '"a${b"', '"${no.such.property}"',
    '"${user.home}/keys"', '"${}"', '"}}${/"',
)  # fmt: skip
FILE_KEYS = ("a", "b", '"c d"', "user_x")
FILE_NAMES = ("KafkaServer", "Client", "external.KafkaServer", "KafkaClient", '"a b"', "'q'", '""', "7", "*", "$x", "\u00e9")
FILE_PIECES = (*JAAS_PIECES, "*", "${/}", "{", "}", "};", "KafkaServer", "\r\n", "/\r\n", "\ufeff", "#")


_NAME_IN_ERROR = re.compile(r"(Value not specified for key|Invalid login module control flag) '.*' in JAAS config", re.DOTALL)


def without_name(verdict: Verdict) -> Verdict:
    """The verdict whose reason hides a name that may be a part of a value."""
    return verdict._replace(text=_NAME_IN_ERROR.sub(r"\1 '[hidden]' in JAAS config", verdict.text)) if verdict.is_refused else verdict


def jaas_files(chance: random.Random) -> list[str]:
    """Sections that are well formed, the same with a piece that is out of place, and random pieces."""

    def entry() -> str:
        module = chance.choice((*sorted(MODULES), "com.example.OtherModule", '"quoted.Module"'))
        options = [f"{chance.choice(FILE_KEYS)}={chance.choice(FILE_VALUES)}" for _ in range(chance.choice((0, 1, 1, 2)))]
        return f"{module} {chance.choice(('required', 'OPTIONAL', 'Sufficient', 'requisite'))} {' '.join(options)};"

    found = []
    for number in range(CASES):
        if number % 4 == 0:
            found.append("".join(chance.choice(FILE_PIECES) for _ in range(chance.randrange(14))))
            continue
        sections = [
            f"{chance.choice(FILE_NAMES)} {{ {' '.join(entry() for _ in range(chance.randrange(3)))} }};"
            for _ in range(chance.choice((1, 1, 2, 3)))
        ]
        text = chance.choice(("\n", " // rest\n", "\r\n")).join(sections)
        if number % 4 == 1:
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(FILE_PIECES) + text[at:]
        found.append(text)
    return found


def ours_of_file(text: str) -> Verdict:
    try:
        sections = {encoded(name): lines_of(entries) for name, entries in parse_jaas_file(text).items()}
    except JaasError as reason:
        return Verdict(True, str(reason))
    return Verdict(False, "\n".join("\n".join([f"{{{name}", *lines]) for name, lines in sorted(sections.items())))


TYPES = (  # first those with names
    "550403", "550406", "550407", "550408", "550409", "55040a", "55040b", "0992268993f22c640101", "0992268993f22c640119",
    "550405", "2a864886f70d010901", "2a030405", "550411", "8837",
)  # fmt: skip
TAGS = (0x0C, 0x0C, 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E, 0x12, 0x1A, 0x04, 0x1C)
CHARACTERS = 'aB5 ,=+<>#;"\\/\n\r\t\0\x7f\u00e9\u20ac\U0001f511\u00a0'


def element(tag: int, content: bytes) -> bytes:
    size = bytes([len(content)]) if len(content) < 128 else bytes([0x82, len(content) >> 8, len(content) & 0xFF])
    return bytes([tag]) + size + content


def name(chance: random.Random) -> bytes:
    def attribute() -> bytes:
        value = "".join(chance.choice(CHARACTERS) for _ in range(chance.choice((0, 1, 2, 3, 8, 40))))
        kind = element(0x06, bytes.fromhex(chance.choice(TYPES)))
        return element(0x30, kind + element(chance.choice(TAGS), value.encode()))

    def relative() -> bytes:
        return element(0x31, b"".join(attribute() for _ in range(chance.choice((1, 1, 1, 2, 3)))))

    return element(0x30, b"".join(relative() for _ in range(chance.randrange(5))))


PATTERNS = (
    "^", "$", "CN=", "cn=", "(.*?)", "(.*)", "[^,]*", "([^,]+)", ",", ",OU=", ".*", r"\w+", r"([\w.-]+)", "(?:a|Duke)", "(?<name>Duke)",
    "(?i)", "x?",
    r"\\,", r"\/", r"\p{Alpha}+", "[a-zA-Z]{2,9}", "(D)?", "|", r"\d", "$,", r"\Q=\E", "(?=C)", "C=(U)(S)", "[", ")", r"\X", "(a)",
)  # fmt: skip
REPLACEMENTS = ("$1", "$2", "$0", "$9", "$12", "${name}", "x", " ", "", r"\$", r"\\", "$", "@", "-", "\\/", "\u00e9", ",")
SUBJECTS = (
    "CN=Duke,OU=JavaSoft,O=Sun Microsystems,C=US",
    "CN=Duke-1.x,OU=JavaSoft,O=a\\,b,C=US",
    "OU=x,CN=b",
    "CN=\u00c9mile\\ ,C=FR",
    "",
    "CN=a\nb",
)


def rules(chance: random.Random) -> str:
    found = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        pattern = "".join(chance.choice(PATTERNS) for _ in range(chance.randrange(1, 5)))
        if chance.random() < 0.5:  # as rules are in practice
            pattern = f"^CN=(.*?),{chance.choice(PATTERNS)}.*$"
        replacement = "".join(chance.choice(REPLACEMENTS) for _ in range(chance.randrange(4)))
        found.append(f"RULE:{pattern}/{replacement}/{chance.choice(('', '', 'L', 'U', 'l'))}")
    return chance.choice((",", " , ", "")).join([*found, *(["DEFAULT"] if chance.random() < 0.5 else [])])


def ours_of_rules(text: str, subject: str) -> Verdict:
    try:
        return Verdict(False, MappingRules(text).name_of(subject))
    except NoMatchingRule:
        return Verdict(False, NO_RULE)
    except ConfigError as reason:
        return Verdict(True, str(reason))


REALM = "EXAMPLE.COM"
PRINCIPALS = (
    "alice@EXAMPLE.COM",
    "Alice.B@OTHER.ORG",
    "kafka/host.example.com@EXAMPLE.COM",
    "kafka/host-2@OTHER.ORG",
    "aXbXc@EXAMPLE.COM",
    "\u00c9mile@EXAMPLE.COM",
    "alice",
    "kafka/host",
    "a/b/c@EXAMPLE.COM",
    "a@b@c",
    "@EXAMPLE.COM",
    "a/@EXAMPLE.COM",
    "",
)
FORMATS = ("$1", "$2", "$0", "$1@$0", "$1.$2", "$1;$0", "x$1", "", "$", "$9", "$1$", "$$1", "a", "[", ".")
MATCHES = (".*", ".*@EXAMPLE.COM", "alice.*", r"\w+", "[a-z]+", ".*;OTHER.ORG", "X", "(?i", "", "a|b", "$", "^kafka$", "kafka")
FROM = ("a", "X", "@.*", ";.*", "[.].*", "^", "$", "b*", r"\w", "(", "([a-z])", "(.)(.)", "", ".*")
TO = ("", "z", "$0", "$1", "$2$1", "$9", r"\$", "\\", "@", "-", "\u00e9")


def kerberos_rule(chance: random.Random) -> str:
    if chance.random() < 0.15:
        return chance.choice(("DEFAULT", "DEFAULT", "DEFAULT/L", "default", ""))
    found = f"RULE:[{chance.choice('1112228')}:{''.join(chance.choice(FORMATS) for _ in range(chance.choice((1, 1, 2))))}]"
    if chance.random() < 0.5:
        found += f"({chance.choice(MATCHES)})"
    if chance.random() < 0.6:
        found += f"s/{chance.choice(FROM)}/{chance.choice(TO)}/{chance.choice(('', 'g'))}"
    return found + chance.choice(("", "", "", "/L", "L", "/U", "U", "/", "/l", "x"))


def kerberos_rules(chance: random.Random) -> list[str]:
    found = [kerberos_rule(chance) for _ in range(chance.choice((1, 1, 2, 3)))]
    return [*found, "DEFAULT"] if chance.random() < 0.3 else found


def ours_of_kerberos(rules: list[str], principal: str) -> Verdict:
    try:
        return Verdict(False, kerberos_names.PrincipalToLocalRules(rules, REALM).name_of(principal))
    except kerberos_names.MalformedPrincipal as malformed:
        return Verdict(True, str(malformed))
    except kerberos_names.NoMatchingRule:
        return Verdict(False, NO_RULE)


class Judged(NamedTuple):
    """All that is asked, and what Java answers: about texts, names, rules, files, and rules for Kerberos, in this order."""

    texts: list[str]
    names: list[bytes]
    rules: list[tuple[str, str]]
    files: list[str]
    kerberos: list[tuple[list[str], str]]
    verdicts: list[Verdict]


@pytest.fixture(scope="module")
def judged() -> Judged:
    """One JVM answers everything, since it takes longer to start than to answer."""
    chance = random.Random(SEED)
    texts = jaas_texts(chance)
    names = [name(chance) for _ in range(CASES)]
    asked = [(rules(chance), chance.choice(SUBJECTS)) for _ in range(CASES)]
    files = jaas_files(chance)
    of_kerberos = [(kerberos_rules(chance), chance.choice(PRINCIPALS)) for _ in range(CASES)]
    questions: list[tuple[str, ...]] = [("jaas", encoded(each)) for each in texts]
    questions += [("name", encoded(each)) for each in names]
    questions += [("rules", encoded(text), encoded(subject)) for text, subject in asked]
    questions += [("file", encoded(each)) for each in files]
    questions += [("local", encoded(REALM), encoded("\n".join(each)), encoded(principal)) for each, principal in of_kerberos]
    return Judged(texts, names, asked, files, of_kerberos, verdicts(questions))


def test_jaas_texts_are_read_and_refused_as_by_apache_kafka(judged: Judged) -> None:
    texts = judged.texts
    ours = [ours_of_jaas(text) for text in texts]
    theirs = judged.verdicts[:CASES]
    different = [
        (text, found, expected)
        for text, found, expected in zip(texts, ours, theirs, strict=True)
        if found not in (expected, without_name(expected))
        and not (found.is_refused and (expected.text == NO_TEXT or " is not supported; use one of " in found.text))
    ]
    assert different[:5] == []
    assert CASES // 8 < sum(not each.is_refused for each in ours) < CASES


def test_jaas_files_are_read_and_refused_as_by_java(judged: Judged) -> None:
    ours = [ours_of_file(text) for text in judged.files]
    theirs = judged.verdicts[3 * CASES : 3 * CASES + len(judged.files)]
    different = [
        (text, found, expected)
        for text, found, expected in zip(judged.files, ours, theirs, strict=True)
        if (found.is_refused, found.is_refused or found.text) != (expected.is_refused, expected.is_refused or expected.text)
        and not (found.is_refused and "which Java replaces by a system property" in found.text)
    ]
    assert different[:5] == []
    assert CASES // 8 < sum(not each.is_refused for each in ours) < CASES
    assert sum(found.is_refused and not expected.is_refused for found, expected in zip(ours, theirs, strict=True)) < CASES // 8


def test_distinguished_names_are_written_as_by_java(judged: Judged) -> None:
    theirs = judged.verdicts[CASES : 2 * CASES]
    read = [(each, expected.text) for each, expected in zip(judged.names, theirs, strict=True) if not expected.is_refused]
    assert [(each.hex(), name_of(each), expected) for each, expected in read if name_of(each) != expected][:5] == []
    assert len(read) > CASES // 2


@pytest.mark.filterwarnings("error")
def test_mapping_rules_name_the_principals_that_apache_kafka_names(judged: Judged) -> None:
    """Rules without an equivalent in Python may be refused, and rules that fail only when they match."""
    ours = [ours_of_rules(*each) for each in judged.rules]
    theirs = judged.verdicts[2 * CASES : 3 * CASES]
    accepted = [(each, found, expected) for each, found, expected in zip(judged.rules, ours, theirs, strict=True) if not found.is_refused]
    assert [each for each in accepted if each[1] != each[2]][:5] == []
    assert len(accepted) > CASES // 8
    named = [each for each, found, _ in accepted if found.text != NO_RULE]
    assert len(named) > CASES // 16


@pytest.mark.filterwarnings("error")
def test_principals_of_kerberos_have_the_names_that_apache_kafka_gives_them(judged: Judged) -> None:
    """Rules without an equivalent in Python may be refused, and rules that fail only when they match. What Java cannot parse is refused."""
    compared = named = refused = 0
    for (rules, principal), expected in zip(judged.kerberos, judged.verdicts[3 * CASES + len(judged.files) :], strict=True):
        try:
            found = ours_of_kerberos(rules, principal)
        except ConfigError:
            refused += 1
            continue
        assert found == expected, (rules, principal)
        compared += 1
        named += not found.is_refused and found.text != NO_RULE
    assert compared > CASES // 8
    assert named > CASES // 16
    assert refused > CASES // 16
