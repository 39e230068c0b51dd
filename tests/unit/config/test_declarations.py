"""The declarations and what DescribeConfigs says of them, held against the recording of Apache Kafka 3.9.1 (tests/golden/configs.json)."""

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.broker_keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS
from ottla.config.keys import groups_4, own, shares
from ottla.config.keys.authorizer_zookeeper import OVERRIDES
from ottla.config.keys.security import ALLOW_EVERYONE_IF_NO_ACL_FOUND, SUPER_USERS
from ottla.config.schema.describe import ConfigEntry, LogLevel, logger_entry
from ottla.config.schema.key import DynamicScope, Key
from ottla.config.topic import TOPIC_KEYS, TopicConfig

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "configs.json").read_text())
BROKER = {entry["name"]: entry for entry in GOLDEN["broker"]}
INTERNAL = {entry["name"]: entry for entry in GOLDEN["broker_not_described"]}
TOPIC = {entry["name"]: entry for entry in GOLDEN["topic"]}
DYNAMIC = GOLDEN["dynamic"]
OWN = {key.name for module in (groups_4, own, shares) for key in vars(module).values() if isinstance(key, Key)} | {
    key.name for key in (SUPER_USERS, ALLOW_EVERYONE_IF_NO_ACL_FOUND, *OVERRIDES.values())
}
"""The keys that Apache Kafka 3.9 does not define: its authorizer reads some without a definition, 4.4 has others, and the rest are this
server's."""
BOUNDS_OF_4 = {
    "group.coordinator.append.linger.ms": "[-1,...]",
    "group.coordinator.rebalance.protocols": "[consumer, classic, share, streams, unknown]",
    "group.share.max.size": "[1,...,1000]",
    "group.share.record.lock.duration.ms": "[1000,...,3600000]",
}
"""The keys of newer groups for which Apache Kafka 4.4 accepts more values than 3.9, so that configurations of both are accepted."""


def recorded_broker() -> BrokerConfig:
    """A broker started with the recording's properties."""
    return BrokerConfig(
        {
            synonym["name"]: synonym["value"]
            for entry in GOLDEN["broker"]
            for synonym in entry["synonyms"]
            if synonym["source"] == "STATIC_BROKER_CONFIG"
        }
    )


def as_recorded(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "type": entry.kind.name,
        "value": entry.value,
        "source": entry.source.name,
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
        "synonyms": [{"name": each.name, "value": each.value, "source": each.source.name} for each in entry.synonyms],
    }


def without_definition(recorded: dict[str, Any]) -> dict[str, Any]:
    return {name: recorded[name] for name in ("name", "type", "value", "source", "read_only", "sensitive", "synonyms")}


def test_a_broker_describes_every_key_as_kafka_does() -> None:
    described = {entry.name: as_recorded(entry) for entry in recorded_broker().describe()}
    assert described == {name: without_definition(entry) for name, entry in BROKER.items()}


def test_a_topic_describes_every_key_as_kafka_does() -> None:
    described = {entry.name: as_recorded(entry) for entry in TopicConfig({}, recorded_broker()).describe()}
    assert described == {name: without_definition(entry) for name, entry in TOPIC.items()}


def definition(key: Key[Any]) -> dict[str, Any]:
    return {
        "default": key.render(key.default),
        "def_type": key.type.kind.name,
        "importance": key.importance.name,
        "validator": key.type.bounds(),
        "internal": key.internal,
    }


@pytest.mark.parametrize(
    ("declared", "recorded"),
    [(BROKER_KEYS, BROKER | INTERNAL), (TOPIC_KEYS, TOPIC), (DYNAMIC_ONLY_KEYS, {each["name"]: each for each in DYNAMIC["broker_quota"]})],
    ids=["broker", "topic", "quota"],
)
def test_every_key_is_declared_as_kafka_defines_it(declared: dict[str, Key[Any]], recorded: dict[str, dict[str, Any]]) -> None:
    expected = {name: {field: entry[field] for field in definition_fields()} for name, entry in recorded.items()}
    for name in BOUNDS_OF_4.keys() & expected.keys():
        assert expected[name]["validator"] != BOUNDS_OF_4[name]
        expected[name]["validator"] = BOUNDS_OF_4[name]
    assert {name: definition(key) for name, key in declared.items() if name not in OWN} == expected


def definition_fields() -> tuple[str, ...]:
    return ("default", "def_type", "importance", "validator", "internal")


def test_the_keys_that_may_change_at_run_time_are_kafkas() -> None:
    changeable = {name for name, key in BROKER_KEYS.items() if key.dynamic is not DynamicScope.READ_ONLY}
    per_broker = {name for name, key in BROKER_KEYS.items() if key.dynamic is DynamicScope.PER_BROKER}
    per_listener = {name for name, key in BROKER_KEYS.items() if key.listener_only}
    assert changeable == set(DYNAMIC["AllDynamicConfigs"])
    assert per_broker == set(DYNAMIC["PerBrokerConfigs"])
    assert per_listener == set(DYNAMIC["DynamicSecurityConfigs"])


def test_the_secrets_that_may_change_at_run_time_are_kafkas() -> None:
    secrets = {name for name, key in BROKER_KEYS.items() if key.sensitive and key.dynamic is not DynamicScope.READ_ONLY}
    assert secrets == set(DYNAMIC["DynamicPasswordConfigs"])


def test_every_default_reads_back_from_its_text() -> None:
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()):
        for value in (key.default, key.default_for(standalone=True)):
            text = key.render(value)
            assert text is None or key.parse(text) == value, key.name


def test_every_key_says_in_a_sentence_what_it_does() -> None:
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()):
        assert key.doc[0].isupper(), key.name
        assert key.doc.endswith("."), key.name
        assert 15 < len(key.doc) < 260, key.name


def test_a_logger_is_described_as_kafka_does() -> None:
    recorded = GOLDEN["broker_logger"][0]
    assert as_recorded(logger_entry(recorded["name"], recorded["value"])) == recorded
    assert {entry["value"] for entry in GOLDEN["broker_logger"]} <= {level.name for level in LogLevel}
