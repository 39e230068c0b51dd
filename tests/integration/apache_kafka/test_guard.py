"""Nothing outlives the process that started it: tried with processes that need no Java."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

STARTS_A_SLEEPER = """
import os, pathlib, signal, subprocess, sys
from tests.support.apache_kafka.guard import process_guard
kept = pathlib.Path(sys.argv[1])
(kept / "data").mkdir()
process_guard().remove_tree(kept / "data")
sleeper = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
process_guard().watch(sleeper.pid)
print(sleeper.pid, flush=True)
"""
ENDS = {
    "normally": "sys.exit(0)",
    "by an exception": "raise RuntimeError('on purpose')",
    "by SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "by SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
}


def wait_until_gone(pid: int, path: Path, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while (Path(f"/proc/{pid}").exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()) or path.exists():
        assert time.monotonic() < deadline, f"process {pid} or {path} is still there"
        time.sleep(0.02)


@pytest.mark.parametrize("end", ENDS)
def test_a_watched_process_and_a_folder_go_when_their_starter_ends(end: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    program = STARTS_A_SLEEPER + ENDS[end]

    starter = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )

    wait_until_gone(int(starter.stdout), tmp_path / "data")


def test_a_released_process_is_left_alone(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    program = STARTS_A_SLEEPER + "process_guard().release(sleeper.pid); os.kill(os.getpid(), signal.SIGKILL)"

    starter = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )

    pid = int(starter.stdout)
    deadline = time.monotonic() + 20
    while (tmp_path / "data").exists() and time.monotonic() < deadline:  # the guard has done its work when the folder is gone
        time.sleep(0.02)
    assert Path(f"/proc/{pid}").exists()
    subprocess.run(["kill", str(pid)], check=True)
