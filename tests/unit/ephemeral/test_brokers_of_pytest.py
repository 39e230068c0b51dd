"""Brokers of pytest-ottla over processes that a test plays: cuts, restarts, and an end that does not come."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_ottla import Broker, Cluster, OttlaError, broker, guard, process
from pytest_ottla.process import BrokerProcess
from tests.support.broker_process import eventually

PLUGIN = Path(__file__).parents[3] / "pytest-ottla"
HANGING = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{}', flush=True); signal.pause()"
PAUSED_AND_LEFT = """
import os, signal, sys
from pathlib import Path
from pytest_ottla import process

process.command = lambda: [sys.executable, "-c", "import sys; print('{}', flush=True); sys.stdin.read()"]
paused = process.BrokerProcess({}, Path(sys.argv[1]))
paused.pause()
print(paused.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
IN_A_DIRECTORY = """
import os, signal, sys, time
from pathlib import Path
from pytest_ottla import guard, process

BROKER = "import pathlib, sys; print('{}', flush=True); sys.stdin.read(); (pathlib.Path(sys.argv[-1]) / 'written at the end').touch()"
directory = Path(sys.argv[1])


class Left:
    def __enter__(self):
        print(process.BrokerProcess({"directory": directory}, directory / "broker.log").pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def __exit__(self, *_):
        pass


process.command = lambda: [sys.executable, "-c", BROKER]
with guard.started_in(directory, lambda directory: Left()):
    pass
"""


class FakeProcess:
    """A process that carries out nothing."""

    def __init__(self, settings: dict[str, str], _: Path) -> None:
        self.settings = dict(settings)
        listeners = ["A://127.0.0.1:1001", "B://127.0.0.1:1002"]
        self.described = {"bootstrap_servers": "127.0.0.1:1001", "listeners": listeners, "broker_id": int(settings.get("broker.id", 0))}
        self.is_running = True
        self.is_paused = False
        self.cut_off: set[int] = set()
        self.delay_ms = 0.0

    def ask(self, do: str, seconds: float = 0.0, **arguments: Any) -> Any:
        if do == "cut":
            self.cut_off = set(arguments["brokers"])
        elif do == "heal":
            self.cut_off = set()
        elif do == "delay":
            self.delay_ms = arguments["ms"]
        return [0, 1, 2] if do == "brokers" else None

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def end(self, number: signal.Signals) -> int:
        self.is_running = False
        return 0


@pytest.fixture
def _played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "BrokerProcess", FakeProcess)


def played(one: Broker) -> FakeProcess:
    assert isinstance(one._process, FakeProcess)
    return one._process


@pytest.mark.usefixtures("_played")
def test_a_cut_holds_for_brokers_that_did_not_run_then_and_for_restarted_ones(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3) as cluster:
        cluster[2].kill()
        cluster[1].pause()
        cluster.cut(0, 1)
        cluster.cut(1, 2)
        assert played(cluster[0]).cut_off == {1}
        cluster[1].resume()
        cluster[2].restart()
        cluster[0].restart()
        assert [played(each).cut_off for each in cluster.brokers] == [{1}, {0, 2}, {1}]
        cluster.heal()
        cluster[0].restart()
        assert [played(each).cut_off for each in cluster.brokers] == [set(), set(), set()]


@pytest.mark.usefixtures("_played")
def test_a_delay_is_for_the_brokers_that_run(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3) as cluster:
        processes = [played(each) for each in cluster.brokers]
        cluster[2].kill()
        cluster.delay(10)
        assert [process.delay_ms for process in processes] == [10, 10, 0]


@pytest.mark.usefixtures("_played")
def test_a_restarted_broker_keeps_all_its_listeners(tmp_path: Path) -> None:
    with Broker(tmp_path, listeners="A://127.0.0.1:0,B://127.0.0.1:0") as several:
        several.restart()
        assert played(several).settings["listeners"] == "A://127.0.0.1:1001,B://127.0.0.1:1002"


@pytest.mark.usefixtures("_played")
def test_a_restarted_broker_behind_a_proxy_keeps_the_listeners_that_it_was_given(tmp_path: Path) -> None:
    with Broker(tmp_path, listeners="A://127.0.0.1:7001", advertised_listeners="A://127.0.0.1:1001") as behind:
        behind.restart()
        assert played(behind).settings["listeners"] == "A://127.0.0.1:7001"


def test_another_program_of_that_name_is_no_broker_and_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "command", lambda: [sys.executable, "-c", "import signal; print('hello', flush=True); signal.pause()"])
    with pytest.raises(OttlaError, match="the broker did not start: it said nothing; its log is"):
        BrokerProcess({}, tmp_path / "broker.log")


def test_a_broker_that_does_not_stop_is_killed_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "command", lambda: [sys.executable, "-c", HANGING])
    monkeypatch.setattr(process, "STOP_SECONDS", 0.2)
    hanging = BrokerProcess({}, tmp_path / "broker.log")
    with pytest.raises(OttlaError, match=r"the broker did not stop within 0\.2 s, and was killed"):
        hanging.end(signal.SIGTERM)
    assert not hanging.is_running


def run_alone(program: str, path: Path) -> str:
    """The output of a program that kills itself."""
    environment = {**os.environ, "PYTHONPATH": str(PLUGIN)}
    command = [sys.executable, "-c", program, str(path)]
    left = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=30, check=False)
    assert left.returncode == -signal.SIGKILL
    return left.stdout


def test_a_paused_broker_ends_with_the_process_that_was_killed(tmp_path: Path) -> None:
    left = run_alone(PAUSED_AND_LEFT, tmp_path / "broker.log")
    eventually(lambda: not Path(f"/proc/{int(left)}/exe").exists(), 10, "the end of the paused process")


def test_the_directory_of_a_run_that_was_killed_is_removed_when_its_brokers_have_ended(tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    left = run_alone(IN_A_DIRECTORY, directory)
    eventually(lambda: not directory.exists(), 10, "the end of the directory")
    assert not Path(f"/proc/{int(left)}/exe").exists()


def test_the_log_of_a_broker_that_does_not_start_stays(tmp_path: Path) -> None:
    def start(directory: Path) -> Broker:
        (directory / "broker.log").touch()
        raise OttlaError("no port")

    with pytest.raises(OttlaError, match="no port"), guard.started_in(tmp_path, start):
        pass
    assert (tmp_path / "broker.log").exists()
