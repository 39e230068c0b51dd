"""The demonstration on an output that cannot draw: a line now and then instead of the screen."""

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.demo.__main__ import _shown


@pytest.mark.parametrize(("is_terminal", "kind"), [(True, "dumb"), (False, "xterm")])
def test_an_output_that_cannot_draw_gets_lines(
    is_terminal: bool, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    screen: Any = SimpleNamespace(line=lambda moment: f"0:ready  written {moment}", draw=lambda moment: "drawn")
    with _shown(None) as show:
        show(screen, cast("Any", 7))
    assert capsys.readouterr().out == "0:ready  written 7\n"
