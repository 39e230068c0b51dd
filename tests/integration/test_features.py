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
from tests.support.broker_process import BrokerProcess, eventually
from tests.support.golden_replay import decode, request_frame
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

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
