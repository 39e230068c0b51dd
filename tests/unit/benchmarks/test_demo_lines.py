"""The demonstration where something is missing: an output that cannot draw, and the usual address of the console."""

import socket
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.demo import brokers
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


def test_the_console_takes_a_free_port_if_the_usual_one_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr(brokers, "CONSOLE", f"127.0.0.1:{other.getsockname()[1]}")
        assert brokers.console_default() == "127.0.0.1:0"
    assert brokers.console_default() == brokers.CONSOLE
