"""Random histories of valid but unusual requests meet no fault of ours: every one is answered, and none leaves a stack trace in the log.

Whether the answers are those of Apache Kafka is what `apache_kafka/test_requests.py` asks, where there is one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.protocol.api_keys import ApiKey
from tests.support.in_process_broker import a_broker_in_process
from tests.support.request_histories import a_history, prefix_of
from tests.support.request_player import RequestPlayer
from tests.support.request_pools import APIS

HISTORIES = 8


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RequestPlayer]:
    """The client of a running broker."""
    directory = tmp_path_factory.mktemp("histories")
    with a_broker_in_process(directory, broker_id=0, log_retention_ms=-1) as broker:
        connected = RequestPlayer(broker.port, str(directory))
        yield connected
        connected.close()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_history_meets_no_fault_of_ours(seed: int, player: RequestPlayer, caplog: pytest.LogCaptureFixture) -> None:
    names = [prefix_of(seed) + name for name in ("a", "b", "cfg", "gone", "n1", "n2")]
    with caplog.at_level(logging.WARNING):
        for step in a_history(seed):
            player.play(step)
            if step.api_key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS):
                player.learn_ids(names)
    faults = [record.getMessage() for record in caplog.records if record.exc_info]
    assert not faults


def test_a_history_is_always_the_same() -> None:
    assert [repr(step) for step in a_history(7)] == [repr(step) for step in a_history(7)]


def test_histories_ask_for_every_api() -> None:
    asked = {step.api_key for seed in range(60) for step in a_history(seed)}
    assert asked == set(APIS)
