"""ApiVersions says what the cluster allows, and refuses a client that expects another cluster or broker."""

from typing import Any

import pytest

from ottla.broker.request import listed_apis
from ottla.broker.request.listed_apis import ListedApis
from ottla.protocol import features
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, FinalizedFeatureKey, SupportedFeatureKey
from tests.support.handler_bench import HandlerBench, on_a_loop

SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}
HERE = "a cluster"


def ask(version: int, *, is_own_cluster: bool = True, levels: dict[str, int] | None = None, **values: Any) -> Any:
    found = []

    @on_a_loop
    async def scenario() -> None:
        bench = HandlerBench()
        bench.features.levels = levels or {}
        bench.services.listed = ListedApis([ApiKey.API_VERSIONS], bench.features.level, is_own_cluster=is_own_cluster)
        found.append(bench.ask(ApiVersionsRequest(**SOFTWARE, **values), ApiKey.API_VERSIONS, version).response)

    scenario()
    return found[0]


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, ErrorCode.NONE),
        (HERE, 0, ErrorCode.NONE),
        (HERE, -1, ErrorCode.INVALID_REQUEST),
        ("", -1, ErrorCode.INVALID_REQUEST),
        (None, 0, ErrorCode.INVALID_REQUEST),
        (HERE, 9, ErrorCode.REBOOTSTRAP_REQUIRED),
        (HERE, -2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("wrong", 0, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 0, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
def test_a_client_that_expects_another_broker_has_to_bootstrap_again(cluster_id: str | None, node_id: int, code: ErrorCode) -> None:
    """The codes of Apache Kafka 4.4."""
    answer = ask(5, cluster_id=cluster_id, node_id=node_id)
    assert answer.error_code == code
    assert bool(answer.api_keys) == (code == ErrorCode.NONE)
    if code != ErrorCode.NONE:
        assert answer.finalized_features_epoch == -1


def test_features_are_listed_where_no_apache_kafka_3_9_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "IMPLEMENTED", {"made.up": 2})
    monkeypatch.setattr(listed_apis, "OF_FEATURES", {("made.up", 1): {}})
    supported = [SupportedFeatureKey(name="made.up", min_version=1, max_version=2)]
    finalized = [FinalizedFeatureKey(name="made.up", max_version_level=1, min_version_level=1)]
    for version in (3, 4, 5):
        own = ask(version)
        assert (own.supported_features, own.finalized_features) == (supported, [])
    raised = ask(4, is_own_cluster=False, levels={"made.up": 1})
    assert (raised.supported_features, raised.finalized_features) == (supported, finalized)
    on_zookeeper = ask(4, is_own_cluster=False)
    assert (on_zookeeper.supported_features, on_zookeeper.finalized_features) == ([], [])


def test_version_5_is_refused_in_a_cluster_on_zookeeper() -> None:
    def refused(version: int, **values: Any) -> Any:
        return ask(version, is_own_cluster=False, **values)

    answer = refused(5)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(line.api_key, line.min_version, line.max_version) for line in answer.api_keys] == [(ApiKey.API_VERSIONS, 0, 4)]
