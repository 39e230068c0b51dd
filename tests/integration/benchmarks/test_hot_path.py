"""The benchmark of the hot path measures the hot path."""

import pytest

from benchmarks.paths import hot_path
from benchmarks.turns.sizes import Pace


def test_every_line_is_measured_beside_its_floor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(hot_path, "ROUNDS", 1)
    monkeypatch.setattr(hot_path, "REQUESTS", 20)
    monkeypatch.setattr(hot_path, "PREFILL_BYTES", 8 << 20)
    monkeypatch.setattr(hot_path, "_PACE", Pace(0, 0, 0, 0, 8 << 20))
    assert hot_path.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9
    assert all(len(line.split()) >= 5 for line in lines)
