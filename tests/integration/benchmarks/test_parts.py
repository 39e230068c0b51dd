"""Turns of every part that one broker or two can take, shortened: each measures what its lines show, and leaves nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.bench import PARTS, main, measurable
from benchmarks.loadgen import compiler
from benchmarks.turns.sizes import QUICK, Pace
from benchmarks.turns.turn import Cores, Plan, Turn
from tests.support.go_programs import needs_go
from tests.support.versitygw import NoVersitygwError

SHORT = replace(
    QUICK,
    pace=Pace(warm_up_limit_s=0, warm_up_s=0, duration_s=0.2, max_bytes=16 << 20, prefill_bytes=16 << 20, warm_up_slice_s=0.1),
    produce_rates=(200, 400),
    fetch_rates=(200,),
    topics=3,
    connections=40,
    old_megabytes=20,
    old_s=0.2,
    long_s=1.5,
    session_partitions=40,
    steady_s=0.6,
    client_records=3000,
    settle_s=0,
    transactional_ids=200,
    transaction_partitions=2000,
    shared_records=2000,
    remote_segment_bytes=1 << 20,
    remote_segments=2,
    replica_megabytes=2,
    replica_old_megabytes=4,
)
SHAPES = (
    "produce-10x10",
    "produce-50x2",
    "fetch-10x16k",
    "fetch-50x2k",
    "fetch-session",
    "fetch-4k-v4",
    "fetch-64k-v12-start",
    "produce-16k-v3",
    "produce-16k-v11-idempotent",
    "mixed",
    "steady-produce",
    "steady-fetch",
    "librdkafka-produce-12",
    "librdkafka-consume-100",
    "produce-10x10-rf3",
)


@pytest.fixture(autouse=True)
def _compiler() -> None:
    try:
        compiler.compiled("loadgen")
    except compiler.NoCompilerError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(
    "key",
    [
        "partitions",
        "share",
        "transaction-state",
        *(pytest.param(each, marks=pytest.mark.soak) for each in ("rates", "connections", "old-readers", "old-clients", "long")),
        pytest.param("groups-4", marks=pytest.mark.soak),
        *(pytest.param(each, marks=[pytest.mark.cluster, pytest.mark.soak]) for each in ("two-brokers", "test-suites")),
        pytest.param("tiered", marks=[pytest.mark.cluster, pytest.mark.soak, pytest.mark.java, needs_go]),
    ],
)
def test_every_line_of_a_part_has_its_number(key: str, tmp_path: Path) -> None:
    turn = Turn("Ottla")

    PARTS[key].take_turn("ottla", turn, tmp_path / "broker", Plan(Cores(None, None), lambda _: None, SHORT))

    assert turn.failures == {}
    assert [line.key for line in PARTS[key].lines(SHORT) if line.value([turn]) is None] == []
    assert all(curve.courses([turn]) for curve in PARTS[key].curves)
    assert not (tmp_path / "broker").exists()


@pytest.mark.java
def test_old_data_in_a_directory_has_its_numbers_without_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise NoVersitygwError("there is no Go")

    monkeypatch.setattr("benchmarks.parts.tiered.ensure_versitygw", missing)
    turn = Turn("Ottla")
    plan = Plan(Cores(None, None), lambda _: None, replace(SHORT, windows=1), frozenset({"tiered-directory"}))

    PARTS["tiered"].take_turn("ottla", turn, tmp_path / "broker", plan)

    assert turn.failures == {}
    assert turn.remarks == ["S3 is left out: there is no Go"]
    lines = [line for line in PARTS["tiered"].lines(SHORT) if line.key.startswith("tiered-directory")]
    assert [line.key for line in lines if line.value([turn]) is None] == []
    assert not (tmp_path / "broker").exists()
    assert not (tmp_path / "store").exists()


def test_a_part_that_measures_none_of_the_kinds_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert measurable(["single", "transaction-state"], ["apache", "apache"]) == ["single"]
    assert measurable(["single", "transaction-state"], ["apache", "ottla"]) == ["single", "transaction-state"]
    assert measurable(["single", "transaction-state"], []) == ["single", "transaction-state"]
    with pytest.raises(SystemExit):
        main(["--parts", "transaction-state", "--kinds", "apache"])
    assert "no part of transaction-state measures apache" in capsys.readouterr().err


@pytest.mark.soak
def test_every_kind_of_shape_is_answered_without_an_error(tmp_path: Path) -> None:
    turn = Turn("Ottla")
    plan = Plan(Cores(None, None), lambda _: None, SHORT, frozenset(SHAPES))

    PARTS["shapes"].take_turn("ottla", turn, tmp_path / "broker", plan)

    assert turn.failures == {}
    lines = {line.key: line for line in PARTS["shapes"].lines(SHORT)}
    shown = [*(key for key in SHAPES if not key.startswith("steady")), "mixed-p99", "steady-produce-p99.9", "steady-fetch-stolen"]
    assert [key for key in shown if lines[key].value([turn]) is None] == []
    assert PARTS["shapes"].curves[0].courses([turn])
    assert not (tmp_path / "broker").exists()


@pytest.mark.soak
def test_every_load_of_transactions_is_answered_without_an_error(tmp_path: Path) -> None:
    turn = Turn("Ottla")
    keys = [key for key in PARTS["transactions"].choices if not key.endswith("-rf3")]

    PARTS["transactions"].take_turn("ottla", turn, tmp_path / "broker", Plan(Cores(None, None), lambda _: None, SHORT, frozenset(keys)))

    assert turn.failures == {}
    lines = PARTS["transactions"].lines(SHORT)
    assert [line.key for line in lines if "-rf3" not in line.key and line.value([turn]) is None] == []
    assert not (tmp_path / "broker").exists()


@pytest.mark.cluster
@pytest.mark.soak
def test_transactions_with_three_replicas_are_answered_without_an_error(tmp_path: Path) -> None:
    turn = Turn("Ottla")
    keys = frozenset({"txn-10x10-rf3", "txn-ten-rf3", "txn-copier-rf3"})

    PARTS["transactions"].take_turn("ottla", turn, tmp_path / "broker", Plan(Cores(None, None), lambda _: None, SHORT, keys))

    assert turn.failures == {}
    assert set(turn.loads) == keys
