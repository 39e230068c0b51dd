"""Compares the answers, records and markers of transactions of version 2 with those that were recorded from Apache Kafka 4.4 (KIP-890)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.judged_broker import QUICK
from tests.support.transaction_player import Player
from tests.support.transaction_plays import LONG_PLAYS, PLAYS, play

RECORDED: dict[str, Any] = json.loads((Path(__file__).parents[2] / "golden" / "transactions-4.4.json").read_text())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), **QUICK) as started:
        yield started


@pytest.mark.parametrize("of", [*PLAYS, *(pytest.param(long, marks=pytest.mark.soak) for long in LONG_PLAYS)], ids=lambda of: of.__name__)
def test_a_play_is_answered_and_stored_as_by_apache_kafka(broker: BrokerProcess, of: Callable[[Player], None]) -> None:
    def restart() -> None:
        broker.stop()
        broker.start()

    noted = play(broker.port, of, restart)
    assert len(noted) == len(RECORDED[of.__name__])
    for number, (own, recorded) in enumerate(zip(noted, RECORDED[of.__name__], strict=True)):
        assert own == recorded, f"step {number} of {of.__name__}"


def test_every_recorded_play_is_played() -> None:
    assert list(RECORDED) == [of.__name__ for of in (*PLAYS, *LONG_PLAYS)]
