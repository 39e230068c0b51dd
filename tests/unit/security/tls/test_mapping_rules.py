"""The results are those of Apache Kafka's SslPrincipalMapper (3.9.1) for the same rules and name."""

from __future__ import annotations

import pytest

from ottla.broker.security.tls.java_patterns import Untranslatable, java_pattern
from ottla.broker.security.tls.mapping_rules import MappingRules, NoMatchingRule
from ottla.config.errors import ConfigError

NAME = "CN=Duke-1.x,OU=JavaSoft,O=Sun Microsystems,ST=a\\,b,C=US"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", NAME),
        ("DEFAULT,DEFAULT", NAME),
        ("RULE:^CN=(.*?),OU=.*$/$1/", "Duke-1.x"),
        ("RULE:^CN=(.*?),.*$/$1/L", "duke-1.x"),
        ("RULE:^CN=(.*?),.*$/$1/U,DEFAULT", "DUKE-1.X"),
        (" RULE:^CN=(.*?),.*$/$1/L , DEFAULT ", "duke-1.x"),
        ("RULE:^CN=nobody$/x/, DEFAULT", NAME),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),.*$/$1@$2/L", "duke-1.x@javasoft"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$4/", "Duke-1.x@$4"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$12/", "Duke-1.x@Duke-1.x2"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$0/", NAME),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$01/", "Duke-1.x"),
        ("RULE:.*/x/", "xx"),
        ("RULE:(.*?)/-/", "".join(f"-{each}" for each in NAME) + "-"),
        ("RULE:^CN=(?<name>[^,]+),.*/${name}/", "Duke-1.x"),
        ("RULE:(?i)^cn=(.*?),.*/$1/", "Duke-1.x"),
        (r"RULE:^CN=([\w\-.]+),.*/\$\/$1\\/", "$/Duke-1.x\\"),
        (r"RULE:^CN=(\p{Alpha}+).*/$1/", "Duke"),
        (r"RULE:^CN=(.*?),.*/a\\/", "a\\"),
        ("RULE:^CN=(.*?,.*)$/$1/", NAME[3:]),
        ("RULE:^CN=((.*?)),OU=((.*?)),O=(.*),ST=(.*),C=(U)(S)()()()$/$10$8$7$11|$1/", "SU|Duke-1.x"),
        (r"RULE:^CN=\QDuke-1.x\E,.*/q/", "q"),
        (r"RULE:^CN=[\w.-]+,OU=\S+?,O=.*/s/", "s"),
        ("RULE:^(CN=.*)(?:,C=(?!DE)..)$/$1/", NAME[:-5]),
        ("RULE:^CN=(.*?),(zz)?.*$/[$2]/", "[]"),
        (r"RULE:^.*ST=([^,\\]*)\\,(b),C=(..)$/$1$2$3/", "abUS"),
        ("RULE:^CN=(.*?),OU=.*$/ $1 /", " Duke-1.x "),
        ("RULE:.*,C=US/a,b/", "a,b"),
    ],
)
def test_a_name_is_mapped_as_by_apache_kafka(rules: str, name: str) -> None:
    assert MappingRules(rules).name_of(NAME) == name


@pytest.mark.parametrize("rules", ["", " ", "RULE:^CN=nobody$/x/", "RULE:^cn=(.*?),.*/$1/", "RULE:CN=Duke/x/"])
def test_a_name_without_a_matching_rule_is_refused(rules: str) -> None:
    with pytest.raises(NoMatchingRule, match=r"ssl\.principal\.mapping\.rules.*Duke-1\.x"):
        MappingRules(rules).name_of(NAME)


@pytest.mark.parametrize(
    "rules",
    [
        "foo",
        "DEFAULTx",
        "DEFAULT foo",
        "RULE:^CN=(.*?),.*/a",
        "RULE:a/b/c/d",
        "RULE:a/b/Lx,DEFAULT",
        "RULE:.*/$1/",
        "RULE:^CN=(?<name>[^,]+),.*/${other}/",
        "RULE:^CN=(.*?),.*/a$/",
        "RULE:^CN=(.*?),.*/$8 and $9/",  # only the first one becomes literal
        "RULE:^CN=(.*?),.*/$99999999999/",
        f"RULE:^CN=(.*?),.*/${'9' * 5_000}/",
        f"RULE:{'(' * 5_000}/x/",
        "RULE:(a/x/",
        "RULE:(?<=a+)b/x/",
    ],
)
def test_rules_that_apache_kafka_refuses_are_refused_with_the_rule(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules=") as error:
        MappingRules(rules)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "pattern", ["[a-z&&[^b]]*", r"\p{IsGreek}", r"\P{Alpha}", r"\h", r"\R", r"\G", r"\cA", r"\012", "(?x)a", "a(?s).", "[]a]"]
)
def test_patterns_of_java_without_an_equivalent_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"not supported|empty class"):
        MappingRules(f"RULE:{pattern}/x/")


@pytest.mark.parametrize("pattern", ["(" * 5_000, "(" * 5_000 + ")" * 5_000, "a{99999999999999999999}"])
def test_a_pattern_that_python_cannot_compile_is_untranslatable(pattern: str) -> None:
    with pytest.raises(Untranslatable, match="the pattern cannot be used"):
        java_pattern(pattern)


def test_a_dot_matches_no_line_end_of_java_and_a_digit_is_ascii() -> None:
    assert MappingRules(r"RULE:CN=a.b/x/,RULE:CN=a\d/y/,DEFAULT").name_of("CN=a\u2028b") == "CN=a\u2028b"
    assert MappingRules(r"RULE:CN=a\d/y/,DEFAULT").name_of("CN=a\u0663") == "CN=a\u0663"
