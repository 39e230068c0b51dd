"""The Kerberos identity of a listener, of a login at other brokers and of a client, read from JAAS entries."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from ottla.config.broker_properties import BrokerProperties
from ottla.config.client_properties import ClientProperties
from ottla.config.errors import ConfigError
from ottla.config.jaas import KERBEROS_MODULE, SCRAM_MODULE, parse_jaas
from ottla.config.kerberos import KerberosIdentity, KerberosListener, kerberos_identity, with_service_name
from ottla.config.sasl import GSSAPI, inter_broker_login, sasl_listener

KEYTAB = 'useKeyTab=true storeKey=true keyTab="/etc/kafka.keytab" principal="kafka/host@REALM"'
LINE = f"{KERBEROS_MODULE} required {KEYTAB};"
KEY = "listener.name.clients.gssapi.sasl.jaas.config"
SERVICE = {"sasl.kerberos.service.name": "kafka"}
IDENTITY = KerberosIdentity("kafka", "kafka/host@REALM", "/etc/kafka.keytab", False, None)


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package looks as if it were there; nothing here calls it."""
    package = ModuleType("gssapi")
    package.__spec__ = ModuleSpec("gssapi", None)
    monkeypatch.setitem(sys.modules, "gssapi", package)


def kerberos_of(**properties: str) -> KerberosListener:
    listener = sasl_listener(BrokerProperties({"sasl.enabled.mechanisms": "GSSAPI", **properties}), "CLIENTS")
    found = listener.mechanisms[GSSAPI].kerberos
    assert found is not None
    return found


def test_a_listener_has_its_keytab_and_kafkas_default_rule() -> None:
    assert kerberos_of(**SERVICE, **{KEY: LINE}) == (IDENTITY, ("DEFAULT",), "sasl.kerberos.principal.to.local.rules")


def test_keys_of_the_listener_come_first() -> None:
    prefix = "listener.name.clients."
    more = {f"{prefix}sasl.kerberos.service.name": "other", f"{prefix}sasl.kerberos.principal.to.local.rules": "RULE:[1:$1]/L, DEFAULT"}
    found = kerberos_of(**SERVICE, **{KEY: LINE}, **more)
    assert found.identity.service_name == "other"
    assert found.rules == ("RULE:[1:$1]/L", "DEFAULT")
    assert found.rules_key == f"{prefix}sasl.kerberos.principal.to.local.rules"


def test_the_service_name_may_be_in_the_jaas_entry() -> None:
    entry = f'{KERBEROS_MODULE} required {KEYTAB} serviceName="kafka";'
    assert kerberos_of(**{KEY: entry}).identity == IDENTITY
    assert kerberos_of(**SERVICE, **{KEY: entry}).identity == IDENTITY


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({KEY: LINE}, "No serviceName defined in either JAAS or Kafka config"),
        ({**SERVICE, KEY: LINE.replace("required", 'required serviceName="x"')}, "Conflicting serviceName values found in JAAS and Kafka"),
        ({**SERVICE, KEY: f"{SCRAM_MODULE} required;"}, f"GSSAPI needs the login module {KERBEROS_MODULE}"),
        ({**SERVICE, KEY: f"{KERBEROS_MODULE} required useTicketCache=true;"}, "a listener has its key from a keytab"),
        ({**SERVICE, KEY: f'{KERBEROS_MODULE} required keyTab="/x" principal="y";'}, "needs the option useKeyTab=true"),
        ({**SERVICE, KEY: f'{KERBEROS_MODULE} required useKeyTab=true principal="y";'}, "has no option keyTab"),
        ({**SERVICE, KEY: f'{KERBEROS_MODULE} required useKeyTab=true keyTab="/x";'}, "has no option principal"),
    ],
)
def test_a_listener_without_a_credential_is_refused_with_key_and_reason(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"^Invalid value .hidden. for configuration {KEY}: .*{reason}"):
        kerberos_of(**properties)


def test_without_the_package_the_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError) as refused:
        kerberos_of()
    assert str(refused.value).startswith(
        "Invalid value GSSAPI for configuration sasl.enabled.mechanisms: listener CLIENTS cannot offer GSSAPI"
    )
    assert "ottla[gssapi]" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_login_at_other_brokers_has_the_service_name() -> None:
    name, module = inter_broker_login(BrokerProperties({**SERVICE, KEY: LINE}), "CLIENTS")
    assert (name, kerberos_identity(module)) == (GSSAPI, IDENTITY)


@pytest.mark.parametrize(
    ("options", "identity"),
    [
        ("useTicketCache=true", KerberosIdentity("kafka", None, None, True, None)),
        (
            'useTicketCache=TRUE ticketCache="FILE:/run/tickets" principal="alice"',
            KerberosIdentity("kafka", "alice", None, True, "/run/tickets"),
        ),
        (
            'useKeyTab="true" keyTab="FILE:/a.keytab" principal="alice@R" useTicketCache=true doNotPrompt=true',
            KerberosIdentity("kafka", "alice@R", "/a.keytab", True, None),
        ),
    ],
)
def test_the_options_of_a_client_are_javas(options: str, identity: KerberosIdentity) -> None:
    (module,) = parse_jaas(f"{KERBEROS_MODULE} required {options};")
    assert kerberos_identity(with_service_name(module, "kafka")) == identity


@pytest.mark.parametrize(
    ("given", "identity"),
    [
        ({"sasl.jaas.config": LINE, "sasl.kerberos.service.name": "kafka"}, IDENTITY),
        (
            {"sasl.kerberos.keytab": "/etc/kafka.keytab", "sasl.kerberos.principal": "kafka/host@REALM"},
            IDENTITY,
        ),
        (
            {"sasl.kerberos.principal": "alice", "sasl.kerberos.service.name": "brokers"},
            KerberosIdentity("brokers", "alice", None, True, None),
        ),
    ],
)
def test_a_client_has_the_words_of_java_or_of_librdkafka(given: dict[str, str], identity: KerberosIdentity) -> None:
    properties = ClientProperties({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", **given})
    assert kerberos_identity(properties.login) == identity
