"""A few seconds of `make soak`, with seeds that do not change."""

from pathlib import Path

import pytest

from tests.soak.__main__ import main
from tests.soak.brokers import BrokerRound
from tests.soak.logs import LogsRound


@pytest.mark.parametrize("seed", range(10))
def test_logs_survive_random_work(seed: int) -> None:
    counts = LogsRound(seed).run()
    assert counts["append"]


def test_a_broker_survives_random_work_and_kills(tmp_path: Path) -> None:
    counts = BrokerRound(1, tmp_path).run(kills=2)
    assert counts["batches"]
    assert counts["read"]


def test_the_seed_and_the_counts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "logs", "--seed", "77", "--rounds", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("seed 77\n")
    assert "2 logs: rounds" in printed


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(self: LogsRound) -> None:
        raise AssertionError("a byte is missing")

    monkeypatch.setattr(LogsRound, "_check", fail)
    assert main(["--only", "logs", "--seed", "5", "--rounds", "1"]) == 1
    assert "--only logs --seed 5 --rounds 1" in capsys.readouterr().out
