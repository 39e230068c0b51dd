"""`ottla cluster status` beside a supervisor that does not answer."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.cluster import command
from ottla.cli.main import main
from ottla.supervisor import control


def test_a_supervisor_that_does_not_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_STATUS_SECONDS", 0.1)
    monkeypatch.chdir(tmp_path)  # the address of a socket has few bytes
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(control.NAME)
        silent.listen()
        done = CliRunner().invoke(main, ["cluster", "status", "--dir", str(tmp_path)])
    assert done.exit_code == 1
    reason = "does not answer within 0.1 s: it is suspended, or this host is too busy"
    assert done.output == f"ottla: the supervisor of {tmp_path} {reason}\n"
