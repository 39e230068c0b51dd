"""A few seconds of the rounds of `make soak`, with seeds that do not change."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.__main__ import main
from tests.soak.brokers import BrokerRound
from tests.soak.logs import LogsRound
from tests.soak.slow_disk import SlowDiskRound
from tests.soak.slow_topics import SlowTopic


@pytest.mark.parametrize("seed", range(10))
def test_logs_survive_random_work(seed: int) -> None:
    counts = LogsRound(seed).run()
    assert counts["append"]


def test_a_broker_survives_random_work_and_kills(tmp_path: Path) -> None:
    counts = BrokerRound(1, tmp_path).run(kills=2)
    assert counts["batches"]
    assert counts["read"]


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.cluster
def test_brokers_with_slow_disks_survive_random_work_and_kills(tmp_path: Path) -> None:
    counts = SlowDiskRound(9, tmp_path, 3, "embedded", seconds=6).run()
    assert counts["batches"]
    assert counts["records read"]
    assert counts["kills"]


@pytest.mark.parametrize(
    ("name", "planted", "reason"),
    [
        ("_tell", lambda self, life, partition, reading, records: None, "was acknowledged at .* and is not there"),
        pytest.param(
            "recreate", lambda self, life: self._round.log_dirs[0][0].joinpath("left").touch(), "left is nobody's", marks=pytest.mark.soak
        ),
    ],
)
def test_a_round_on_a_slow_disk_can_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, planted: Callable[..., None], reason: str
) -> None:
    monkeypatch.setattr(SlowTopic, name, planted)
    monkeypatch.setattr("tests.soak.slow_disk.REST_SECONDS", 2.0)
    with pytest.raises(AssertionError, match=reason):
        SlowDiskRound(3, tmp_path, 1, "embedded", seconds=4).run()


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
