"""The benchmark of followers' fetches runs: what it measures is still the broker's."""

import pytest

from benchmarks.paths import followers


def test_every_session_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(followers, "ROUNDS", 1)
    monkeypatch.setattr(followers, "FETCHES", 2)
    monkeypatch.setattr(followers, "SESSIONS", ((1, 0), (1, 30), (2, 0)))
    assert followers.main([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
