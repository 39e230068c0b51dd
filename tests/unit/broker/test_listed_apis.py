"""Which versions are listed and accepted, by the kind of the cluster and the levels of its features."""

import pytest

from ottla.broker.request import listed_apis
from ottla.broker.request.listed_apis import ListedApis, newest_accepted
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.features import TRANSACTION_VERSION
from ottla.protocol.schema.fields import Versions

SERVED = {ApiKey.FETCH, ApiKey.METADATA, ApiKey.END_TXN, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.LIST_CONFIG_RESOURCES}


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        listed_apis, "WITHOUT_FEATURE", {ApiKey.METADATA: 13, ApiKey.LIST_CONFIG_RESOURCES: 1, ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0}
    )
    monkeypatch.setattr(listed_apis, "OF_FEATURES", {("made.up", 2): {ApiKey.END_TXN: 5, ApiKey.METADATA: 12}})


def test_a_cluster_on_zookeeper_lists_the_versions_of_3_9_alone() -> None:
    listed = ListedApis(SERVED)
    assert listed.versions == {ApiKey.FETCH: Versions(0, 17), ApiKey.METADATA: Versions(0, 12), ApiKey.END_TXN: Versions(0, 4)}
    assert listed.accepts(ApiKey.METADATA, 12)
    assert not listed.accepts(ApiKey.METADATA, 13)
    assert not listed.accepts(ApiKey.METADATA, -1 & 0xFFFF)
    assert not listed.accepts(9999, 0)


def test_what_3_9_accepts_without_listing_it_is_accepted() -> None:
    assert ListedApis(SERVED).accepts(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    assert not ListedApis(SERVED).accepts(ApiKey.LIST_CONFIG_RESOURCES, 0)


def test_a_cluster_of_its_own_lists_the_versions_that_need_no_feature() -> None:
    listed = ListedApis(SERVED, is_own_cluster=True)
    assert listed.versions[ApiKey.METADATA] == Versions(0, 13)
    assert listed.versions[ApiKey.LIST_CONFIG_RESOURCES] == Versions(0, 1)
    assert listed.versions[ApiKey.DESCRIBE_TOPIC_PARTITIONS] == Versions(0, 0)
    assert listed.versions[ApiKey.END_TXN] == Versions(0, 4)


def test_a_feature_adds_its_versions_from_its_level_on_and_takes_them_away_again() -> None:
    levels = {"made.up": 1}
    listed = ListedApis(SERVED, lambda name: levels.get(name, 0))
    changes: list[bool] = []
    listed.on_change(lambda: changes.append(listed.accepts(ApiKey.END_TXN, 5)))
    assert not listed.accepts(ApiKey.END_TXN, 5)
    levels["made.up"] = 2
    listed.update()
    assert listed.versions[ApiKey.METADATA] == Versions(0, 13)
    levels["made.up"] = 0
    listed.update()
    assert listed.versions == ListedApis(SERVED).versions
    listed.update()
    assert changes == [True, False]


def test_telemetry_is_listed_while_there_is_a_subscription_and_accepted_always() -> None:
    subscriptions: list[str] = []
    listed = ListedApis(SERVED | {ApiKey.PUSH_TELEMETRY}, is_own_cluster=True, has_subscriptions=lambda: bool(subscriptions))
    changes: list[bool] = []
    listed.on_change(lambda: changes.append(ApiKey.PUSH_TELEMETRY in listed.versions))
    assert ApiKey.PUSH_TELEMETRY not in listed.versions
    assert listed.accepts(ApiKey.PUSH_TELEMETRY, 0)
    assert not listed.accepts(ApiKey.PUSH_TELEMETRY, 1)
    subscriptions.append("a")
    listed.update()
    assert listed.versions[ApiKey.PUSH_TELEMETRY] == Versions(0, 0)
    subscriptions.append("b")
    listed.update()
    subscriptions.clear()
    listed.update()
    assert changes == [True, False]
    assert listed.accepts(ApiKey.PUSH_TELEMETRY, 0)


def test_a_cluster_on_zookeeper_without_features_has_no_telemetry() -> None:
    listed = ListedApis(SERVED | {ApiKey.PUSH_TELEMETRY}, has_subscriptions=lambda: True)
    assert ApiKey.PUSH_TELEMETRY not in listed.versions
    assert not listed.accepts(ApiKey.PUSH_TELEMETRY, 0)


def test_the_newest_accepted_version_is_that_of_any_cluster() -> None:
    assert [newest_accepted(key) for key in (ApiKey.FETCH, ApiKey.METADATA, ApiKey.END_TXN)] == [17, 13, 5]


def test_transactions_of_version_2_are_accepted_after_their_level_was_lowered_but_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed_apis, "OF_FEATURES", {(TRANSACTION_VERSION, 2): {ApiKey.END_TXN: 5}})
    levels = {TRANSACTION_VERSION: 2}
    listed = ListedApis([ApiKey.END_TXN], lambda name: levels.get(name, 0))
    assert listed.versions[ApiKey.END_TXN].last == 5
    levels.clear()
    listed.update()
    assert listed.versions[ApiKey.END_TXN].last == 4
    assert listed.accepts(ApiKey.END_TXN, 5)
    assert not ListedApis([ApiKey.END_TXN], lambda name: levels.get(name, 0)).accepts(ApiKey.END_TXN, 5)
