"""The short names are those of Apache Kafka's KerberosShortNamer (3.9.1) for the same rules and principal."""

from __future__ import annotations

import pytest

from ottla.broker.security.sasl.kerberos_names import MalformedPrincipal, NoMatchingRule, PrincipalToLocalRules
from ottla.config.errors import ConfigError

REALM = "REALM.COM"


def name_of(principal: str, *rules: str) -> str:
    return PrincipalToLocalRules(rules, REALM).name_of(principal)


@pytest.mark.parametrize(
    ("principal", "rules", "name"),
    [
        ("alice@REALM.COM", ["DEFAULT"], "alice"),
        ("kafka/host.example@REALM.COM", ["DEFAULT"], "kafka"),
        ("alice@REALM.COM", ["RULE:[2:$1]", "DEFAULT"], "alice"),
        ("App.service-name/host@REALM.COM", [r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT"], "service-name"),
        ("App.service-name@REALM.COM", [r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT"], "service-name"),
        ("user@OTHER.COM", ["RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//", "DEFAULT"], "user"),
        ("User@REALM.COM", ["RULE:[1:$1]/L"], "user"),
        ("User@REALM.COM", ["RULE:[1:$1]L"], "user"),
        ("User@REALM.COM", ["RULE:[1:$1]/U"], "USER"),
        ("User@REALM.COM", ["RULE:[1:$1](.*)s/s/z/U"], "UZER"),
        ("aaa@REALM.COM", ["RULE:[1:$1](.*)s/a/b/"], "baa"),
        ("aaa@REALM.COM", ["RULE:[1:$1](.*)s/a/b/g/L"], "bbb"),
        ("aaa@REALM.COM", ["RULE:[1:$1-$0]"], "aaa-REALM.COM"),
        ("a/b@REALM.COM", ["RULE:[2:$2.$1]"], "b.a"),
        ("alice@REALM.COM", ["RULE:[1:x$1y$1]"], "xaliceyalice"),
        ("alice@REALM.COM", ["RULE:[1:]"], ""),
        ("alice@REALM.COM", ["RULE:[7:$7]", "DEFAULT"], "alice"),
        ("alice", [], "alice"),
        ("kafka/host", ["DEFAULT"], "kafka/host"),
    ],
)
def test_a_principal_is_named_as_by_apache_kafka(principal: str, rules: list[str], name: str) -> None:
    assert name_of(principal, *rules) == name


@pytest.mark.parametrize(
    ("principal", "rules"),
    [
        ("alice@OTHER.COM", ["DEFAULT"]),
        ("alice@REALM.COM", []),
        ("alice@REALM.COM", ["RULE:[2:$1]"]),
        ("alice@REALM.COM", ["RULE:[1:$1](bob)"]),
        ("alice@REALM.COM", ["RULE:[1:$1@$0]", "DEFAULT"]),  # a result with a realm ends the search
    ],
)
def test_a_principal_without_a_rule_has_no_name(principal: str, rules: list[str]) -> None:
    with pytest.raises(NoMatchingRule):
        name_of(principal, *rules)


@pytest.mark.parametrize("principal", ["a/b/c@REALM.COM", "alice@REALM@COM", "@@", "a@b/c"])
def test_a_principal_of_another_form_has_no_name(principal: str) -> None:
    with pytest.raises(MalformedPrincipal, match="Malformed Kerberos name"):
        name_of(principal, "DEFAULT", "RULE:[1:$1]")


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "default",
        "DEFAULT/L",
        "DEFAULT ",
        "RULE:[1:$1](.*)s/a/b",
        "RULE:[1:$1](.*)s/a/b/x",
        "RULE:[1:$1]/X",
        "RULE:[:$1]",
        "RULE:[99999999999:$1]",
        "RULE:[x:$1]",
        "RULE:[1:$2]",
        "RULE:[1:$]",
        "RULE:[1:$1]([)",
        "RULE:[1:$1](.*)s/(/b/",
        "RULE:[1:$1](.*)s/a/$1/",
        "RULE:[1:$1](.*)s/a/b\\/",
        r"RULE:[1:$1](\p{IsGreek}*)",
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_in_one_line(rule: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PrincipalToLocalRules(["DEFAULT", rule], REALM)
    assert rule in str(refused.value)
    assert "\n" not in str(refused.value)
