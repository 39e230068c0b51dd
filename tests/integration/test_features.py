"""The features of a cluster, with one that is made up: a new cluster has it, an old one can get it, and versions follow its level."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.request import listed_apis
from ottla.broker.server import CannotStart
from ottla.controller.znodes.layout import FEATURE, FeatureNode, encode_feature
from ottla.protocol import features
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.broker_process import BrokerProcess, eventually
from tests.support.command_line import CommandLine
from tests.support.golden_replay import decode, request_frame
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import a_wire_client

MADE_UP = "made.up"


@pytest.fixture(autouse=True)
def implemented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "IMPLEMENTED", {MADE_UP: 2})
    monkeypatch.setattr(listed_apis, "OF_FEATURES", {(MADE_UP, 1): {ApiKey.END_TXN: 5}})


def api_versions(port: int, version: int = 5) -> Any:
    """What the broker lists."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(request_frame(request, ApiKey.API_VERSIONS, version, "test"))
        with connection.makefile("rb") as answer:
            (size,) = struct.unpack(">i", answer.read(4))
            return decode(answer.read(size), ApiKey.API_VERSIONS, version)


def newest_end_txn(port: int) -> int:
    return next(line.max_version for line in api_versions(port).api_keys if line.api_key == ApiKey.END_TXN)


def levels(port: int) -> dict[str, int]:
    return {each.name: each.max_version_level for each in api_versions(port).finalized_features}


async def put(broker: InProcessBroker, data: bytes | None) -> None:
    store = broker.services.administration.store
    await (store.delete(FEATURE) if data is None else store.set(FEATURE, data))


@pytest.fixture
def new(tmp_path: Path) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path) as broker:
        yield broker


def test_a_new_cluster_has_every_feature_at_its_highest_level(new: InProcessBroker) -> None:
    listed = api_versions(new.port)
    assert [(each.name, each.min_version, each.max_version) for each in listed.supported_features] == [(MADE_UP, 1, 2)]
    assert levels(new.port) == {MADE_UP: 2}
    assert listed.finalized_features_epoch == 0
    assert newest_end_txn(new.port) == 5


def test_nothing_is_finalized_while_brokers_that_ignore_features_may_be_in_the_cluster(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path, inter_broker_protocol_version="2.6") as broker:
        assert levels(broker.port) == {}
        assert (
            "Feature versioning system is disabled." in CommandLine(broker.bootstrap)("features", "upgrade", f"{MADE_UP}=1", status=1).err
        )
        assert levels(broker.port) == {}


def test_versions_follow_the_level_while_clients_are_connected(new: InProcessBroker) -> None:
    new.run(put, new, encode_feature(FeatureNode({})))
    eventually(lambda: levels(new.port) == {})
    assert newest_end_txn(new.port) == 4
    new.run(put, new, encode_feature(FeatureNode({MADE_UP: 1})))
    eventually(lambda: levels(new.port) == {MADE_UP: 1})
    assert newest_end_txn(new.port) == 5
    assert api_versions(new.port).finalized_features_epoch == 2
    new.run(put, new, None)
    eventually(lambda: levels(new.port) == {})
    assert newest_end_txn(new.port) == 4


def test_an_old_cluster_keeps_its_levels_and_is_told_of_higher_ones_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(features, "IMPLEMENTED", {})
    with a_broker_in_process(tmp_path) as broker:
        assert api_versions(broker.port).supported_features == []
    monkeypatch.setattr(features, "IMPLEMENTED", {MADE_UP: 2})
    caplog.clear()
    with caplog.at_level("INFO"), a_broker_in_process(tmp_path) as broker:
        assert levels(broker.port) == {}
        assert newest_end_txn(broker.port) == 4
    said = [record.getMessage() for record in caplog.records if "ottla features upgrade" in record.getMessage()]
    assert said == ["this release supports made.up=2, which the cluster has not finalized: run `ottla features upgrade`"]


def test_the_controller_raises_and_lowers_a_level_and_answers_when_it_is_in_effect(new: InProcessBroker) -> None:
    with a_wire_client(new.port) as client:
        for level, kind, version in [(1, 2, 1), (2, 1, 2), (0, 3, 2), (1, 1, 1)]:
            update = FeatureUpdateKey(feature=MADE_UP, max_version_level=level, upgrade_type=kind)
            answer = client.ask(UpdateFeaturesRequest(feature_updates=[update]), version)
            assert (answer.error_code, [each.error_code for each in answer.results]) == (0, [0] if version < 2 else [])
            assert levels(new.port) == ({MADE_UP: level} if level else {})
            assert newest_end_txn(new.port) == (5 if level else 4)
        lower = FeatureUpdateKey(feature=MADE_UP, max_version_level=0, allow_downgrade=True)
        assert client.ask(UpdateFeaturesRequest(feature_updates=[lower]), 0).results[0].error_code == 0
        assert levels(new.port) == {}


@pytest.mark.parametrize(
    ("version", "code", "message", "results"),
    [
        (1, 0, None, [(MADE_UP, 0), ("other", 42)]),
        (
            2,
            95,
            "The update failed for all features since the following feature had an error: Invalid update version 1 for feature other. "
            "Local controller 1001 does not support this feature.",
            [],
        ),
    ],
)
def test_a_wrong_update_beside_a_right_one(new: InProcessBroker, version: int, code: int, message: str | None, results: list[Any]) -> None:
    asked = [FeatureUpdateKey(feature=name, max_version_level=1, upgrade_type=2) for name in (MADE_UP, "other")]
    with a_wire_client(new.port) as client:
        answer = client.ask(UpdateFeaturesRequest(feature_updates=asked), version)
    assert (answer.error_code, answer.error_message) == (code, message)
    assert [(each.feature, each.error_code) for each in answer.results] == results
    assert levels(new.port) == {MADE_UP: 2 if code else 1}


def test_names_of_30_kib_and_very_many_of_them_are_answered(new: InProcessBroker) -> None:
    with a_wire_client(new.port) as client:
        long = FeatureUpdateKey(feature="n" * 30_000, max_version_level=1)
        assert client.ask(UpdateFeaturesRequest(feature_updates=[long]), 1).results[0].error_code == 42
        assert client.ask(UpdateFeaturesRequest(feature_updates=[long]), 2).error_code == 95
        many = [FeatureUpdateKey(feature=f"f{number % 1000}", max_version_level=1) for number in range(20_000)]
        assert len(client.ask(UpdateFeaturesRequest(feature_updates=many), 1).results) == 1000


def test_a_node_with_garbage_takes_no_update(new: InProcessBroker) -> None:
    new.run(put, new, b"garbage")
    update = FeatureUpdateKey(feature=MADE_UP, max_version_level=1, upgrade_type=2)
    with a_wire_client(new.port) as client:
        assert client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1).results[0].error_code == 96
        assert client.ask(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code == 96
    assert levels(new.port) == {MADE_UP: 2}


def test_a_deleted_node_takes_the_next_update(new: InProcessBroker) -> None:
    new.run(put, new, None)
    eventually(lambda: levels(new.port) == {})
    line = CommandLine(new.bootstrap)
    assert line("features", "upgrade").out == "made.up: raised to 2\n"
    assert levels(new.port) == {MADE_UP: 2}


def test_the_command_line_describes_raises_and_lowers(new: InProcessBroker) -> None:
    line = CommandLine(new.bootstrap)
    assert line("features", "list").rows == [[MADE_UP, "2", "1", "2"]]
    assert line("features", "upgrade").err == "every feature has its highest level\n"
    assert line("features", "downgrade", "made.up=1", "--dry-run").out == "made.up: can be lowered to 1\n"
    assert levels(new.port) == {MADE_UP: 2}
    assert line("features", "downgrade", "made.up=1").out == "made.up: lowered to 1\n"
    assert line("features", "downgrade").out == "made.up: removed\n"
    assert line("features", "downgrade").err == "no feature is finalized\n"
    assert line("features", "list", "--json").json == {
        "epoch": 2,
        "features": [{"name": MADE_UP, "finalized": 0, "lowest": 1, "highest": 2}],
    }
    refused = line("features", "upgrade", "other=1", status=1)
    assert "the provided feature is not supported" in refused.err
    assert line("features", "upgrade", MADE_UP).out == "made.up: raised to 2\n"
    for wrong in ("=1", "made.up=-1", "made.up=x", "made.up=40000"):
        assert line("features", "upgrade", wrong, status=2).out == ""


UNKNOWN = b'{"features":{"made.up":{"max_version_level":3}},"version":2,"status":1}'


@pytest.mark.parametrize(("data", "said"), [(b"garbage", "/feature: not JSON"), (UNKNOWN, r"finalized made\.up=3, but")])
def test_a_node_that_this_release_cannot_follow_ends_the_next_start(tmp_path: Path, data: bytes, said: str) -> None:
    with a_broker_in_process(tmp_path) as broker:
        broker.run(put, broker, data)
    with pytest.raises(CannotStart, match=said), a_broker_in_process(tmp_path):
        pass


def test_an_unsupported_level_ends_a_running_broker_and_garbage_does_not(new: InProcessBroker) -> None:
    new.run(put, new, b"garbage")
    assert levels(new.port) == {MADE_UP: 2}
    assert not new.broker.failed
    new.run(put, new, UNKNOWN)
    eventually(lambda: new.broker.failed)


def test_the_process_of_a_broker_ends_with_status_1_and_one_line(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path / "data"):
        pass  # the cluster has a feature that a broker in a process of its own does not know
    process = BrokerProcess(tmp_path)
    with pytest.raises(AssertionError, match="the broker said ''"):
        process.start()
    assert process.wait() == 1
    assert "the cluster has finalized made.up=2, but this release supports" in process.log()
    assert "Traceback" not in process.log()
