"""Subscriptions to the metrics of clients: which clients they match, and what all that match want together."""

from __future__ import annotations

import pytest

from ottla.broker.telemetry.subscriptions import Merged, Subscription, merged, subscription_id, subscription_of
from ottla.protocol.records.checksum import crc32c

ID = bytes(range(16))
CLIENT = {
    "client_instance_id": "AAECAwQFBgcICQoLDA0ODw",
    "client_id": "app-1",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.4.0",
    "client_source_address": "127.0.0.1",
    "client_source_port": "4711",
}


def subscription(metrics: str = "", interval_ms: int = 5_000, match: str = "") -> Subscription:
    found = subscription_of({"metrics": metrics, "interval.ms": str(interval_ms), "match": match})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("", True),
        ("client_id=app-.*", True),
        ("client_id=app", False),
        ("client_id=other|app-1", True),
        (" client_id = app-1 , client_software_name = apache-.* ", True),
        ("client_id=app-1,client_software_version=3.*", False),
        ("client_instance_id=AAECAwQFBgcICQoLDA0ODw", True),
        ("client_source_address=127\\.0\\.0\\.1,client_source_port=47..", True),
        ("client_source_port=4712", False),
        ("client_id=other,client_id=app-1", True),
    ],
)
def test_every_pattern_has_to_match_as_a_whole(match: str, matches: bool) -> None:
    assert subscription(match=match).matches(CLIENT) == matches


def test_a_property_that_the_client_does_not_have_matches_nothing() -> None:
    assert not subscription(match="client_id=.*").matches({**CLIENT, "client_id": None})


@pytest.mark.parametrize("overrides", [{"match": "client_id"}, {"match": "client_id=["}, {"interval.ms": "soon"}])
def test_a_configuration_that_only_a_malformed_store_has_is_no_subscription(overrides: dict[str, str]) -> None:
    assert subscription_of(overrides) is None


def test_metrics_are_joined_and_the_shortest_interval_counts() -> None:
    found = merged([subscription("b.,a.", 9_000), subscription("a.,c.", 7_000)], ID)
    assert found == Merged(("a.", "b.", "c."), 7_000, subscription_id(("a.", "b.", "c."), 7_000, ID))


def test_all_metrics_contain_the_others() -> None:
    assert merged([subscription("a."), subscription("*,b.")], ID).metrics == ("*",)


def test_without_a_subscription_nothing_is_wanted_every_five_minutes() -> None:
    assert merged([], ID)[:2] == ((), 300_000)
    assert merged([subscription("a.", 3_600_000)], ID).interval_ms == 300_000


def test_the_subscription_id_is_the_checksum_of_what_is_wanted_with_the_hash_of_the_instance() -> None:
    # The hash of Java's Uuid is its two halves xored, whose two halves are xored.
    high, low = (int.from_bytes(ID[at : at + 8], "big") for at in (0, 8))
    both = high ^ low
    expected = crc32c(b"[*]5000") ^ (both >> 32) ^ (both & 0xFFFFFFFF)
    assert subscription_id(("*",), 5_000, ID) & 0xFFFFFFFF == expected
    assert subscription_id(("a.", "b."), 1, bytes(16)) & 0xFFFFFFFF == crc32c(b"[a., b.]1")
    assert all(-(2**31) <= subscription_id(("*",), at, ID) < 2**31 for at in range(50))


@pytest.mark.parametrize(
    ("metrics", "interval_ms", "first", "recorded"),
    [((), 300_000, 0, -725132322), (("org.apache.kafka.producer.",), 1_000, 0, 690914681), (("*",), 1_000, 1, 848016041)],
)
def test_the_subscription_id_is_that_of_apache_kafka_4(metrics: tuple[str, ...], interval_ms: int, first: int, recorded: int) -> None:
    assert subscription_id(metrics, interval_ms, bytes(range(first, first + 16))) == recorded
