"""How the clients of a SASL listener authenticate, read from the properties of the broker."""

from pathlib import Path

import pytest

from ottla.config.broker_properties import BrokerProperties
from ottla.config.errors import ConfigError
from ottla.config.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE
from ottla.config.sasl import (
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SaslListener,
    ignored_jaas_key,
    inter_broker_login,
    sasl_listener,
    unsecured_tokens,
)

PLAIN_LINE = f'{PLAIN_MODULE} required user_alice="alice-secret";'
KEY = "listener.name.clients.plain.sasl.jaas.config"


def listener_of(**properties: str) -> SaslListener:
    return sasl_listener(BrokerProperties(properties), "CLIENTS")


def test_a_mechanism_has_the_users_of_its_own_key() -> None:
    listener = listener_of(**{"sasl.enabled.mechanisms": "PLAIN", KEY: PLAIN_LINE})
    mechanism = listener.mechanisms[PLAIN]
    assert mechanism.option(PLAIN_MODULE, "user_alice") == "alice-secret"
    assert mechanism.option(SCRAM_MODULE, "user_alice") is None
    assert (mechanism.max_reauth_ms, listener.max_receive_size) == (0, 524_288)


def test_keys_of_the_listener_precede_bare_keys() -> None:
    listener = listener_of(
        **{
            "sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            KEY: PLAIN_LINE,
            "listener.name.clients.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            "connections.max.reauth.ms": "1000",
            "listener.name.clients.plain.connections.max.reauth.ms": "50",
            "listener.name.clients.sasl.server.max.receive.size": "1000",
        }
    )
    assert {name: each.max_reauth_ms for name, each in listener.mechanisms.items()} == {PLAIN: 50, SCRAM_SHA_256: 1000}
    assert listener.max_receive_size == 1000


def test_a_file_stands_in_for_keys_and_the_section_of_the_listener_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    given = {"sasl.enabled.mechanisms": "PLAIN", "ottla.jaas.file": str(file)}
    file.write_text(f"KafkaServer {{ {PLAIN_LINE} }};")
    assert listener_of(**given).mechanisms[PLAIN].option(PLAIN_MODULE, "user_alice") == "alice-secret"
    file.write_text(f'KafkaServer {{ {PLAIN_LINE} }}; clients.KafkaServer {{ {PLAIN_MODULE} required user_bob="b"; }};')
    mechanism = listener_of(**given).mechanisms[PLAIN]
    assert (mechanism.option(PLAIN_MODULE, "user_alice"), mechanism.option(PLAIN_MODULE, "user_bob")) == (None, "b")


def test_only_the_section_in_use_needs_known_modules(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    given = {"sasl.enabled.mechanisms": "PLAIN", "ottla.jaas.file": str(file)}
    file.write_text(f"KafkaServer {{ {PLAIN_LINE} }}; Other {{ com.example.Module required; }};")
    assert listener_of(**given).mechanisms[PLAIN].option(PLAIN_MODULE, "user_alice") == "alice-secret"
    file.write_text(f"KafkaServer {{ {PLAIN_LINE} com.sun.security.auth.module.JndiLoginModule required; }};")
    refusal = rf"^Invalid value {file} for configuration ottla\.jaas\.file: section KafkaServer: the login module com\.sun.*JndiLoginModule"
    with pytest.raises(ConfigError, match=refusal):
        listener_of(**given)


def test_a_jaas_configuration_without_the_prefix_of_its_mechanism_is_named_as_ignored(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(f"KafkaServer {{ {PLAIN_LINE} }};")
    given = {"sasl.enabled.mechanisms": "PLAIN", "ottla.jaas.file": str(file)}
    for changes, ignored in (
        ({}, None),
        ({"sasl.jaas.config": PLAIN_LINE}, "sasl.jaas.config"),
        ({"listener.name.clients.sasl.jaas.config": PLAIN_LINE}, "listener.name.clients.sasl.jaas.config"),
        ({"sasl.jaas.config": PLAIN_LINE, KEY: PLAIN_LINE}, None),
    ):
        properties = BrokerProperties({**given, **changes})
        assert ignored_jaas_key(properties, "CLIENTS", ["PLAIN"]) == ignored


def test_the_options_of_unsecured_tokens_have_kafkas_defaults() -> None:
    line = f'{OAUTHBEARER_MODULE} required unsecuredValidatorRequiredScope="a b" unsecuredValidatorAllowableClockSkewMs="3";'
    listener = listener_of(**{"sasl.enabled.mechanisms": "OAUTHBEARER", "listener.name.clients.oauthbearer.sasl.jaas.config": line})
    assert unsecured_tokens(listener.mechanisms[OAUTHBEARER]) == ("sub", "scope", ("a", "b"), 3)


VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
BEARER = "listener.name.clients.oauthbearer"


def signed(**more: str) -> dict[str, str]:
    """The properties of a listener that takes signed tokens. In the names of `more` an underscore stands for a dot."""
    given = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{BEARER}.sasl.jaas.config": f'{OAUTHBEARER_MODULE} required ssl.truststore.type="PEM";',
        f"{BEARER}.sasl.server.callback.handler.class": VALIDATOR,
        f"{BEARER}.sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
    }
    return given | {name.replace("_", "."): text for name, text in more.items()}


def test_signed_tokens_have_kafkas_defaults_and_keys_of_the_mechanism_come_first() -> None:
    tokens = listener_of(**signed()).mechanisms[OAUTHBEARER].signed_tokens
    source = ("https://issuer/keys", 3_600_000, 100, 10_000, (("ssl.truststore.type", "PEM"),))
    assert tokens == (source, frozenset(), None, 30, "scope", "sub")
    more = {
        "sasl.oauthbearer.clock.skew.seconds": "1",
        f"{BEARER}.sasl.oauthbearer.clock.skew.seconds": "2",
        f"{BEARER}.sasl.oauthbearer.expected.audience": "a,b",
        "listener.name.clients.sasl.oauthbearer.expected.issuer": "me",
        "sasl.oauthbearer.sub.claim.name": "email",
        "sasl.oauthbearer.scope.claim.name": "groups",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "9",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "8",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "7",
        "ottla.sasl.oauthbearer.allowed.urls": "https://issuer/keys,file:/x",
    }
    tokens = listener_of(**signed(), **more).mechanisms[OAUTHBEARER].signed_tokens
    assert tokens == ((source[0], 9, 8, 7, source[4]), frozenset({"a", "b"}), "me", 2, "groups", "email")


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({f"{BEARER}.sasl.oauthbearer.jwks.endpoint.url": ""}, f"{BEARER}.sasl.oauthbearer.jwks.endpoint.url"),
        ({f"{BEARER}.sasl.oauthbearer.jwks.endpoint.url": "ldap://x"}, f"{BEARER}.sasl.oauthbearer.jwks.endpoint.url"),
        ({"ottla.sasl.oauthbearer.allowed.urls": "https://issuer/keys2"}, f"{BEARER}.sasl.oauthbearer.jwks.endpoint.url"),
        ({"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        ({"sasl.oauthbearer.sub.claim.name": " "}, "sasl.oauthbearer.sub.claim.name"),
        ({f"{BEARER}.sasl.server.callback.handler.class": "a.B"}, f"{BEARER}.sasl.server.callback.handler.class"),
        ({"sasl.login.class": "a.B"}, "sasl.login.class"),
    ],
)
def test_signed_tokens_that_cannot_be_validated_are_refused(more: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=f"for configuration {name}: "):
        listener_of(**{**signed(), **more})


def test_another_mechanism_has_no_class_for_signed_tokens() -> None:
    with pytest.raises(ConfigError, match="loads no Java classes"):
        listener_of(**{"sasl.enabled.mechanisms": "PLAIN", KEY: PLAIN_LINE, "sasl.server.callback.handler.class": VALIDATOR})


def test_a_key_may_name_the_class_that_apache_kafka_has_by_default() -> None:
    kafka = "org.apache.kafka.common.security"
    named = {
        "listener.name.clients.plain.sasl.login.class": f"{kafka}.authenticator.DefaultLogin",
        "listener.name.clients.plain.sasl.server.callback.handler.class": f"{kafka}.plain.internals.PlainServerCallbackHandler",
        f"{BEARER}.sasl.login.callback.handler.class": f"{kafka}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
        f"{BEARER}.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
    }
    assert list(listener_of(**{"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER", KEY: PLAIN_LINE, **named}).mechanisms) == [
        PLAIN,
        OAUTHBEARER,
    ]
    with pytest.raises(ConfigError, match="loads no Java classes"):
        listener_of(**{**signed(), f"{BEARER}.sasl.login.class": named["listener.name.clients.plain.sasl.login.class"]})


@pytest.mark.parametrize("name", ["sasl.client.callback.handler.class", "listener.name.clients.sasl.client.callback.handler.class"])
def test_a_class_for_the_login_at_other_brokers_is_refused_unless_it_is_the_default(name: str) -> None:
    given = {"sasl.mechanism.inter.broker.protocol": "PLAIN", KEY: PLAIN_LINE}
    default = "org.apache.kafka.common.security.authenticator.SaslClientCallbackHandler"
    assert inter_broker_login(BrokerProperties({**given, name: default}), "CLIENTS")[0] == PLAIN
    with pytest.raises(ConfigError, match=f"^Invalid value a.B for configuration {name}: this server loads no Java classes"):
        inter_broker_login(BrokerProperties({**given, name: "a.B"}), "CLIENTS")


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        (
            {"sasl.enabled.mechanisms": "PLAIN,NTLM", KEY: PLAIN_LINE},
            "Invalid value PLAIN,NTLM for configuration sasl.enabled.mechanisms: listener CLIENTS cannot offer NTLM; the mechanisms of",
        ),
        (
            {"sasl.enabled.mechanisms": ""},
            "Invalid value  for configuration sasl.enabled.mechanisms: listener CLIENTS has no SASL",
        ),
        ({"sasl.enabled.mechanisms": "PLAIN"}, f"Invalid value null for configuration {KEY}: listener CLIENTS enables PLAIN; set it, or"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", KEY: f"{PLAIN_LINE} {PLAIN_LINE}"},
            f"Invalid value [hidden] for configuration {KEY}: JAAS config property contains 2 login modules, should be 1 module",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", KEY: PLAIN_LINE.rstrip(";")},
            f"Invalid value [hidden] for configuration {KEY}: JAAS config entry not terminated by semi-colon",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", KEY: PLAIN_LINE, "listener.name.clients.plain.sasl.server.callback.handler.class": "a.B"},
            "Invalid value a.B for configuration listener.name.clients.plain.sasl.server.callback.handler.class: this server loads no Java",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", KEY: PLAIN_LINE, "principal.builder.class": "a.B"},
            "Invalid value a.B for configuration principal.builder.class: only org.apache.kafka",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", KEY: PLAIN_LINE, "listener.name.clients.principal.builder.class": "a.B"},
            "Invalid value a.B for configuration listener.name.clients.principal.builder.class: only org.apache.kafka",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "ottla.jaas.file": "/does/not/exist"},
            "Invalid value /does/not/exist for configuration ottla.jaas.file: cannot be read: No such file or directory",
        ),
        (
            signed() | {f"{BEARER}.sasl.oauthbearer.jwks.endpoint.url": "https://alice:alice-secret@issuer/keys"},
            f"Invalid value [hidden] for configuration {BEARER}.sasl.oauthbearer.jwks.endpoint.url: the URL has a user or a password",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.clients.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required "
                'unsecuredValidatorAllowableClockSkewMs="-3";',
            },
            "Invalid value [hidden] for configuration listener.name.clients.oauthbearer.sasl.jaas.config: the option unsecured",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.clients.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required "
                f'unsecuredValidatorAllowableClockSkewMs="{"1" * 5000}";',
            },
            "Invalid value [hidden] for configuration listener.name.clients.oauthbearer.sasl.jaas.config: the option unsecured",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_key_value_and_reason(properties: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        listener_of(**properties)
    assert str(refused.value).startswith(error)
    assert "alice-secret" not in str(refused.value)
