"""A run of `ottla validate --chaos` that is killed leaves no broker and no copier paused or stopped."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.validate.guard import Guard
from tests.support.broker_process import eventually

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
LET_BROKERS_GO = """
import os, signal, sys
from pathlib import Path
from ottla.validate.chaos import Brokers

Brokers(Path(sys.argv[1])).hit(sys.argv[2], 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
LET_A_COPIER_GO = """
import os, signal
from types import SimpleNamespace
from ottla.validate.copying.copiers import _Process
from ottla.validate.copying.settings import Settings

settings = Settings("127.0.0.1:1", 0, "rows", "copies", "copiers", "copier-0", 10_000, 10, 0, "a", "b", 1, "none", 100, 1_000_000)
copier = _Process("ottla.validate.copying.copier", settings, print)
copier.start()
copier.pause()
print(copier._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def ottla(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "ottla", "cluster", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def killed(program: str, *arguments: str) -> str:
    """The output of a program that has killed itself."""
    done = subprocess.run([sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done
    return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("abandoned") / "cluster"
    start = [sys.executable, "-P", "-m", "ottla", "cluster", "up", "2", "--dir", str(folder), "--base-port", "0", "--detach"]
    subprocess.run(start, timeout=60, check=True)
    yield folder
    subprocess.run([sys.executable, "-P", "-m", "ottla", "cluster", "down", "--dir", str(folder)], timeout=60, check=True)


@pytest.mark.parametrize("fault", ["pause", "stop"])
def test_a_killed_run_leaves_no_broker_paused_or_stopped(fault: str, cluster: Path) -> None:
    killed(LET_BROKERS_GO, str(cluster), fault)
    eventually(lambda: {each["state"] for each in ottla("status", "--dir", str(cluster))["brokers"]} == {"ready"}, 30, "ready")


def test_a_killed_run_leaves_no_paused_copier() -> None:
    copier = int(killed(LET_A_COPIER_GO))
    eventually(lambda: not Path(f"/proc/{copier}/exe").exists(), 30, "the end of the copier")


def test_a_fault_that_was_undone_is_not_undone_again(tmp_path: Path) -> None:
    guard = Guard(["touch", str(tmp_path / "undone")])
    guard.end()
    assert not (tmp_path / "undone").exists()


def test_a_guard_waits_for_the_command_that_does_the_fault(tmp_path: Path) -> None:
    guard = Guard(["touch", str(tmp_path / "undone")])
    doing = os.dup(guard.descriptor)
    guard._input.close()
    with pytest.raises(subprocess.TimeoutExpired):
        guard._process.wait(0.2)
    os.close(doing)
    assert guard._process.wait(30) == 0
    assert (tmp_path / "undone").exists()
