"""Apache Kafka's SslFactory judges the stores of a listener between brokers, at a start and at an exchange, and we judge alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest

from ottla.broker.configuration.certificate_renewal import check_exchange
from ottla.broker.security.tls.listener import ListenerTls, check_peers, tls_of
from ottla.config.broker_properties import BrokerProperties
from ottla.config.errors import ConfigError
from ottla.config.listeners import EndPoint, SecurityProtocol
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.certificates import Identity
from tests.support.security_judge import Verdict, a_judge, encoded

pytestmark = needs_apache_kafka

NAME = "BROKERS"
Judge = Callable[[Sequence[Sequence[str]]], list[Verdict]]
CLIENT_AUTHS = ("none", "requested", "required")
A, B = Identity("CN=first authority"), Identity("CN=second authority")
OLD_A = Identity("CN=old authority", days=-1)


class Stores(NamedTuple):
    """Of one broker: its key, and the certificates that it trusts; none means those of the system."""

    identity: Identity
    trusted: Sequence[Identity]

    @property
    def words(self) -> list[str]:
        """Arguments of the judge."""
        trusted = "".join(each.certificate_pem for each in self.trusted)
        return [encoded(self.identity.key_pem()), encoded(self.identity.certificate_pem), encoded(trusted)]

    def tls(self, client_auth: str) -> ListenerTls:
        properties = {
            "ssl.client.auth": client_auth,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": self.identity.key_pem(),
            "ssl.keystore.certificate.chain": self.identity.certificate_pem,
        }
        if self.trusted:
            properties |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": "".join(each.certificate_pem for each in self.trusted),
            }
        return tls_of(BrokerProperties(properties), EndPoint(NAME, "127.0.0.1", 0, SecurityProtocol.SSL), between_brokers=True)


@pytest.fixture(scope="module")
def verdicts() -> Iterator[Judge]:
    with a_judge() as judge:
        yield judge


def issued(by: Identity | None = A, **validity: int) -> Identity:
    return Identity("CN=localhost", by, **validity)


OF_A, OF_B, SELF_SIGNED = issued(), issued(B), issued(None)
STORES = {
    "its authority is trusted": Stores(OF_A, [A]),
    "one of two authorities is its own": Stores(OF_A, [B, A]),
    "another authority is trusted": Stores(OF_A, [B]),
    "no trust store": Stores(OF_A, []),
    "it signs itself and is trusted": Stores(SELF_SIGNED, [SELF_SIGNED]),
    "it signs itself and another is trusted": Stores(SELF_SIGNED, [issued(None)]),
    "an authority of the same name": Stores(OF_A, [Identity("CN=first authority")]),
    "expired": Stores(issued(days=-1), [A]),
    "not valid yet": Stores(issued(starts_in_days=1), [A]),
    "its issuer is no authority": Stores(issued(OF_A), [A]),
}
EXCHANGES = {
    "another key of the same authority": (Stores(OF_A, [A]), Stores(issued(), [A])),
    "the same stores": (Stores(OF_A, [A]), Stores(OF_A, [A])),
    "a key of another authority": (Stores(OF_A, [A]), Stores(OF_B, [B])),
    "a key that the old brokers do not trust": (Stores(OF_A, [A]), Stores(OF_B, [A, B])),
    "a trust store without the old authority": (Stores(OF_A, [A]), Stores(OF_A, [B])),
    "a trust store with one more authority": (Stores(OF_A, [A]), Stores(OF_A, [A, B])),
    "both are trusted, then another key": (Stores(OF_A, [A, B]), Stores(OF_B, [A, B])),
    "both were trusted, then only the new one": (Stores(OF_B, [A, B]), Stores(OF_B, [B])),
    "an expired key": (Stores(OF_A, [A]), Stores(issued(days=-1), [A])),
}
NOT_WITH_EACH_OTHER = (Stores(OF_A, [A, B]), Stores(OF_B, [A]))
"""Brokers with the new stores trust the old ones, and the reverse, but no two with the new ones can connect."""


def ours_at_start(stores: Stores, client_auth: str) -> str:
    try:
        check_peers(NAME, stores.tls(client_auth))
    except ConfigError as reason:
        return str(reason)
    return ""


def ours_at_exchange(old: Stores, new: Stores, client_auth: str) -> str:
    try:
        check_exchange(NAME, old.tls(client_auth), new.tls(client_auth))
    except ConfigError as reason:
        return str(reason)
    return ""


def differences(ours: dict[tuple[str, str], str], theirs: Sequence[Verdict]) -> dict[tuple[str, str], tuple[str, str]]:
    both = zip(ours.items(), theirs, strict=True)
    return {name: (mine, verdict.text) for (name, mine), verdict in both if bool(mine) != verdict.is_refused}


def test_a_broker_starts_with_the_stores_with_which_apache_kafka_starts(verdicts: Judge) -> None:
    asked = [(name, auth) for name in STORES for auth in CLIENT_AUTHS]
    theirs = verdicts([("stores", encoded(auth), *STORES[name].words) for name, auth in asked])
    ours = {(name, auth): ours_at_start(STORES[name], auth) for name, auth in asked}
    assert differences(ours, theirs) == {}
    assert {name for name, reason in ours.items() if not reason} == {
        (name, auth)
        for name in ("its authority is trusted", "one of two authorities is its own", "it signs itself and is trusted")
        for auth in CLIENT_AUTHS
    }
    assert all("can't connect to a server SSLEngine" in each.text for each in theirs if each.is_refused)


@pytest.mark.soak
def test_stores_are_exchanged_as_in_apache_kafka(verdicts: Judge) -> None:
    asked = [(name, auth) for name in EXCHANGES for auth in CLIENT_AUTHS]
    questions = [("exchange", encoded(auth), *EXCHANGES[name][0].words, *EXCHANGES[name][1].words) for name, auth in asked]
    ours = {(name, auth): ours_at_exchange(*EXCHANGES[name], auth) for name, auth in asked}
    assert differences(ours, verdicts(questions)) == {}
    assert 0 < sum(map(bool, ours.values())) < len(ours)


def test_only_we_refuse_stores_with_which_new_brokers_could_not_connect_to_each_other(verdicts: Judge) -> None:
    """Apache Kafka takes them, and does not start with them again."""
    old, new = NOT_WITH_EACH_OTHER
    exchanged, started = verdicts([("exchange", encoded("required"), *old.words, *new.words), ("stores", encoded("required"), *new.words)])
    assert (exchanged.is_refused, started.is_refused) == (False, True)
    assert ours_at_exchange(old, new, "required").endswith("brokers with this configuration cannot connect to each other")


def test_a_certificate_that_is_itself_in_the_trust_store_is_trusted_by_both(verdicts: Judge) -> None:
    stores = Stores(OF_A, [OF_A])
    (theirs,) = verdicts([("stores", encoded("none"), *stores.words)])
    assert (theirs.is_refused, ours_at_start(stores, "none")) == (False, "")


def test_only_we_refuse_an_authority_that_has_expired(verdicts: Judge) -> None:
    stores = Stores(issued(OLD_A), [OLD_A])
    (theirs,) = verdicts([("stores", encoded("none"), *stores.words)])
    assert not theirs.is_refused
    assert "certificate has expired" in ours_at_start(stores, "none")
