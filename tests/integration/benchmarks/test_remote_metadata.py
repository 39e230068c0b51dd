"""The benchmark of the metadata of remote segments runs: what it measures is still what a broker reads at its start."""

import asyncio
import gc
import json
from pathlib import Path

import pytest

from benchmarks.comparisons import remote_metadata


def test_both_starts_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", ["remote_metadata", "--records", "9001", "--json", str(tmp_path / "numbers")])
    monkeypatch.setattr(asyncio.Handle, "_run", asyncio.Handle._run)  # the benchmark replaces it for good
    callbacks, thresholds = list(gc.callbacks), gc.get_threshold()
    try:
        remote_metadata.main()
    finally:
        gc.callbacks[:] = callbacks
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    found = json.loads((tmp_path / "numbers").read_text())
    assert set(found) == {f"metadata_{start}_{what}" for start in ("read", "snapshot") for what in ("s", "cpu_s", "turn_ms")}
