"""A broker of the tests is a fork of a process that has imported everything, and behaves as one that was started by itself."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess, a_broker


def command_of(broker: BrokerProcess) -> list[str]:
    return Path(f"/proc/{broker.pid}/cmdline").read_text().split("\0")


def test_a_fork_has_the_exit_status_of_its_end(tmp_path: Path) -> None:
    with a_broker(tmp_path) as broker:
        assert "tests.support.broker_template" in command_of(broker)
        assert broker.stop() == 0
        broker.start()
        broker.signal(signal.SIGKILL)
        assert broker.wait() == -signal.SIGKILL
        assert not broker.is_running


def test_forks_have_folders_and_standard_streams_of_their_own(tmp_path: Path) -> None:
    with a_broker(tmp_path / "a") as one, a_broker(tmp_path / "b") as other:
        for broker in (one, other):
            process = Path(f"/proc/{broker.pid}")
            assert os.readlink(process / "cwd") == str(broker.directory)
            assert os.readlink(process / "fd" / "0") == os.devnull
            assert os.readlink(process / "fd" / "2") == str(broker.log_file)
        ours, theirs = ({os.readlink(each) for each in Path(f"/proc/{broker.pid}/fd").iterdir()} for broker in (one, other))
        assert {name for name in ours & theirs if name.startswith(("pipe:", "socket:"))} == set()


def test_a_broker_is_no_fork_when_python_would_read_another_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    with a_broker(tmp_path) as broker:
        assert command_of(broker)[1:4] == ["-m", "ottla", "serve"]
        assert broker.stop() == 0
