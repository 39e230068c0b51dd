"""The text of JAAS configurations, read as Java's StreamTokenizer and Kafka's JaasConfig read it."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.errors import JaasError
from ottla.config.jaas import PLAIN_MODULE, SCRAM_MODULE, LoginModule, check_modules, parse_jaas, parse_jaas_file

REQUIRED = f"{PLAIN_MODULE} required"


def options(text: str) -> dict[str, str]:
    (module,) = parse_jaas(f"{REQUIRED} {text};")
    return dict(module.options)


def test_an_entry_has_a_module_a_flag_and_options() -> None:
    text = f"{PLAIN_MODULE} Required user_admin=\"admin-secret\" user_alice='a b';"
    assert parse_jaas(text) == [LoginModule(PLAIN_MODULE, "REQUIRED", {"user_admin": "admin-secret", "user_alice": "a b"})]


def test_several_entries_are_several_modules() -> None:
    assert [each.name for each in parse_jaas(f"{REQUIRED}; {SCRAM_MODULE} optional a=b;")] == [PLAIN_MODULE, SCRAM_MODULE]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a="x\\ty"', "x\ty"),
        ('a="x\\"y"', 'x"y'),
        ('a="x\\\\y"', "x\\y"),
        ('a="\\101\\1019\\7"', "AA9\a"),
        ('a="\\400"', " 0"),
        ("a=b-c_d$e.5", "b-c_d$e.5"),
        ("a=/* c */b", "b"),
        ("a= // c\n b", "b"),
        ("a= / c\n b", "b"),
        ("a= /\nc\n b", "b"),
        ("a= //\n b", "b"),
        ("a=pass\u00e9", "pass\u00e9"),
        ('a="x // y"', "x // y"),
        ('a="b" a="c"', "c"),
    ],
)
def test_values_are_words_or_quoted_strings(text: str, expected: str) -> None:
    assert options(text) == {"a": expected}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Login module not specified in JAAS config"),
        ("// nothing", "Login module not specified in JAAS config"),
        (PLAIN_MODULE, "Login module control flag not specified in JAAS config"),
        (f"{PLAIN_MODULE};", "Login module control flag is not available in the JAAS config"),
        (f"{PLAIN_MODULE} always;", "Invalid login module control flag 'always' in JAAS config"),
        (REQUIRED, "JAAS config entry not terminated by semi-colon"),
        (f"{REQUIRED} username;", "Value not specified for key 'username' in JAAS config"),
        (f"{REQUIRED} user_a=;", "Value not specified for key 'user_a' in JAAS config"),
        (f"{REQUIRED} password=5;", "Value not specified for key 'password' in JAAS config"),
        (f"{REQUIRED} password=-b;", "Value not specified for key 'password' in JAAS config"),
        (f"{REQUIRED} password b c;", "Value not specified for key 'password' in JAAS config"),
        ('"" required;', "Login module not specified in JAAS config"),
    ],
)
def test_a_malformed_text_is_refused_with_the_text_of_kafka(text: str, reason: str) -> None:
    with pytest.raises(JaasError) as refused:
        parse_jaas(text)
    assert str(refused.value) == reason


def test_other_modules_are_refused_by_name() -> None:
    with pytest.raises(JaasError, match=r"com\.sun\.security\.auth\.module\.JndiLoginModule is not supported"):
        parse_jaas("com.sun.security.auth.module.JndiLoginModule required;")


def test_an_unclosed_quote_ends_with_its_line() -> None:
    with pytest.raises(JaasError, match="Value not specified for key 'username'"):
        options('password="b\nusername')


def quoted(value: str) -> str:
    octal = "".join(f"\\{ord(char):03o}" if char in '"\\' or char < " " else char for char in value)
    return f'"{octal}"'


@given(st.dictionaries(st.from_regex(r"[a-zA-Z_$][a-zA-Z0-9_$.-]*", fullmatch=True), st.text(st.characters(codec="utf-16"))))
def test_any_quoted_value_is_read_as_it_was_written(written: dict[str, str]) -> None:
    assert options(" ".join(f"{name}={quoted(value)}" for name, value in written.items())) == written


@given(st.text(alphabet="ab =;\"'\\/*\n\r0.-{}_\u00e9\u0085") | st.text())
def test_any_text_is_an_entry_or_an_error(text: str) -> None:
    for parse in (parse_jaas, parse_jaas_file, options):
        with contextlib.suppress(JaasError):
            parse(text)


@given(st.text(alphabet="abc123", min_size=8))
def test_no_error_shows_a_value(secret: str) -> None:
    with pytest.raises(JaasError) as refused:
        options(f'a="s-{secret}" b=')
    assert f"s-{secret}" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        'password="al"ice-secret"',
        "password=alice my-secret",
        'user_alice="a" b-secret"',
        "password=ali;ce my-secret",
        'password="ali";ce"my-secret"',
    ],
)
def test_no_error_shows_a_part_of_a_value_that_is_quoted_wrongly(text: str) -> None:
    with pytest.raises(JaasError, match=r"'\[hidden\]' in JAAS config") as refused:
        options(text)
    assert "secret" not in str(refused.value)
    with pytest.raises(JaasError) as of_file:
        parse_jaas_file(f"KafkaServer {{ {REQUIRED} {text}; }};")
    assert "secret" not in str(of_file.value)


def test_a_file_has_sections() -> None:
    text = f"""
        // for the brokers
        KafkaServer {{ {REQUIRED} user_a="b"; {SCRAM_MODULE} required; }};
        sasl.KafkaServer {{ {SCRAM_MODULE} required; }};
    """
    sections = parse_jaas_file(text)
    assert {name: [each.name for each in modules] for name, modules in sections.items()} == {
        "KafkaServer": [PLAIN_MODULE, SCRAM_MODULE],
        "sasl.KafkaServer": [SCRAM_MODULE],
    }


@pytest.mark.parametrize(
    "text",
    [
        "KafkaServer",
        "KafkaServer {",
        f"KafkaServer {{ {REQUIRED}; }}",
        "A {}; A {};",
        "A { required; };",
        'A { "" required; };',
        "A { module always; };",
        "A { 'module' required; };",
        "A { module required a; };",
        "A { module required a b; };",
        "A { module required a=5; };",
        "A { module required a='b'; };",
        "A { module required 'a'=b; };",
        "A { module required 5=b; };",
    ],
)
def test_a_malformed_file_is_refused(text: str) -> None:
    with pytest.raises(JaasError):
        parse_jaas_file(text)


def test_a_section_may_be_empty_or_have_a_name_that_nothing_can_ask_for() -> None:
    assert parse_jaas_file("A {}; 5 {}; 'b c' {};") == {"A": [], "b c": []}


def test_a_file_may_have_sections_for_other_programs() -> None:
    (entry,) = parse_jaas_file("Other { com.example.Module required a=* *b=c; };")["Other"]
    assert entry == LoginModule("com.example.Module", "REQUIRED", {"a": "*", "*b": "c"})
    with pytest.raises(JaasError, match=r"com\.example\.Module is not supported"):
        check_modules([entry])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${/}etc${/}keys", "/etc/keys"),
        ("${{user}} x", "${{user}} x"),
        ("${{user}}", "${{user}}"),
        ("${{user} x", "${{user} x"),
        ("a${b", "a${b"),
        ("a$b{c}", "a$b{c}"),
    ],
)
def test_the_values_of_a_file_are_expanded_as_by_java(value: str, expected: str) -> None:
    (entry,) = parse_jaas_file(f'A {{ module required key="{value}"; }};')["A"]
    assert entry.options == {"key": expected}


def test_a_system_property_of_java_is_refused_without_telling_the_value() -> None:
    with pytest.raises(JaasError, match=r"the value of the option password has .* which Java replaces by a system property") as refused:
        parse_jaas_file('A { module required password="hush${hush}hush"; };')
    assert "hush" not in str(refused.value)
