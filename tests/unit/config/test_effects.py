"""The column Effect of docs/configuration.md tells the truth: a key has an effect exactly if a floor above reads it."""

import re
from functools import cache
from pathlib import Path

from ottla.config import topic
from ottla.config.broker_keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS, SUBJECTS
from ottla.config.keys import quotas as broker_quotas
from ottla.config.keys.authorizer_zookeeper import OVERRIDES
from ottla.config.schema.key import Key
from ottla.config.topic import TOPIC_KEYS

ROOT = Path(__file__).parents[3]
READERS = ("broker", "coordination", "controller", "replication", "storage")
"""The floors that act on keys; `config` itself only checks them."""

READ_WITHIN_CONFIG = {
    *(override.name for override in OVERRIDES.values() if override.effective),
    "broker.id.generation.enable",
    "connections.max.reauth.ms",
    "control.plane.listener.name",
    "inter.broker.listener.name",
    "log.dir",
    "log.message.timestamp.difference.max.ms",
    "message.timestamp.difference.max.ms",
    "node.id",
    "ottla.jaas.file",
    "ottla.sasl.oauthbearer.allowed.urls",
    "password.encoder.cipher.algorithm",
    "password.encoder.iterations",
    "password.encoder.key.length",
    "password.encoder.keyfactory.algorithm",
    "password.encoder.old.secret",
    "password.encoder.secret",
    "principal.builder.class",
    "remote.log.metadata.manager.class.name",
    "remote.log.metadata.manager.impl.prefix",
    "remote.log.metadata.manager.listener.name",
    "remote.log.storage.manager.class.name",
    "sasl.client.callback.handler.class",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.server.callback.handler.class",
    "sasl.server.max.receive.size",
    "security.inter.broker.protocol",
}
"""What `config` makes something else of (listeners, their authentication, ids, directories, an encoder), which the floors then read."""


@cache
def words_of_the_readers() -> frozenset[str]:
    return frozenset(
        word for floor in READERS for path in (ROOT / floor).rglob("*.py") for word in re.findall(r"\b[A-Z][A-Z0-9_]+\b", path.read_text())
    )


def keys_by_constant() -> dict[str, list[Key[object]]]:
    """The name of the constant -> the keys that are called so: a topic's and the broker's may share it."""
    found: dict[str, list[Key[object]]] = {}
    for module in (*SUBJECTS, broker_quotas, topic):
        for name, value in vars(module).items():
            if isinstance(value, Key) and value not in found.setdefault(name, []):
                found[name].append(value)
    return found


def keys_that_are_read() -> set[str]:
    read = {key.name for name, keys in keys_by_constant().items() if name in words_of_the_readers() for key in keys}
    for key in BROKER_KEYS.values():
        if key.topic in read:
            read.add(key.name)
    for key in BROKER_KEYS.values():
        if key.name in read:
            read |= {synonym.name for synonym in key.synonyms}
    return read


def test_a_key_has_an_effect_exactly_if_it_is_read() -> None:
    keys = {**BROKER_KEYS, **TOPIC_KEYS, **DYNAMIC_ONLY_KEYS}
    effective = {name for name, key in keys.items() if key.effective}
    read = keys_that_are_read()
    assert effective == read | READ_WITHIN_CONFIG
