"""The benchmark of the transaction coordinator runs: what it measures is still the coordinator's."""

import asyncio
import gc

import pytest

from benchmarks.comparisons import transaction_state


def test_every_load_of_the_coordinator_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(transaction_state, "CROWD", 50)
    monkeypatch.setattr(transaction_state, "OPEN_AT_ONCE", 10)
    monkeypatch.setattr("sys.argv", ["transaction_state", "--ids", "200", "--partitions", "2000"])
    monkeypatch.setattr(asyncio.Handle, "_run", asyncio.Handle._run)  # the benchmark replaces it for good
    callbacks = list(gc.callbacks)
    try:
        transaction_state.main()
    finally:
        gc.callbacks[:] = callbacks
    measured = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()[1:] if not line.startswith(" ")]
    assert measured == [
        *["AddPartitionsToTxn"] * 2,
        *["EndTxn"] * 2,
        "markers",
        *["AddPartitionsToTxn of 2000 topics"] * 2,
        "crowd",
        "markers of the crowd",
        "load",
    ]
