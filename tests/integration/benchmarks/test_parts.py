"""Turns of every part that one broker or two can take, shortened: each measures what its lines show, and leaves nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.bench import PARTS
from benchmarks.loadgen import compiler
from benchmarks.sizes import QUICK, Pace
from benchmarks.turns import Cores, Plan, Turn

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
    settle_s=0,
)


@pytest.fixture(autouse=True)
def _compiler() -> None:
    try:
        compiler.compiled("loadgen")
    except compiler.NoCompilerError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(
    "key", ["rates", "partitions", "connections", "old-readers", "long", pytest.param("two-brokers", marks=pytest.mark.cluster)]
)
def test_every_line_of_a_part_has_its_number(key: str, tmp_path: Path) -> None:
    turn = Turn("Ottla")

    PARTS[key].take_turn("ottla", turn, tmp_path / "broker", Plan(Cores(None, None), lambda _: None, SHORT))

    assert turn.failures == {}
    assert [line.key for line in PARTS[key].lines(SHORT) if line.value([turn]) is None] == []
    assert all(curve.courses([turn]) for curve in PARTS[key].curves)
    assert not (tmp_path / "broker").exists()
