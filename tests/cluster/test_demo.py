"""The demonstration of `make demo`: it kills brokers, loses nothing, ends at a signal, and leaves nothing."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.broker_process import eventually

ROOT = Path(__file__).parents[2]


def processes_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def test_it_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    record, pictures = tmp_path / "demo.cast", tmp_path / "pictures"
    command = [sys.executable, "-m", "benchmarks.demo", "--no-spark", "--kill-every", "5", "--console", "127.0.0.1:0"]
    command += ["--record", str(record), "--pictures", str(pictures)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    try:
        eventually((pictures / "demo-kill.svg").exists, 60)
        process.send_signal(signal.SIGHUP)
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, said
    acknowledged = re.search(r"([\d,]+) events were acknowledged, 0 of them are missing, 0 repeated", said)
    assert acknowledged is not None, said
    assert int(acknowledged[1].replace(",", "")) > 100
    shared = re.search(r"a share group processed ([\d,]+) events, 0 are left", said)
    assert shared is not None, said
    assert shared[1] == acknowledged[1]
    assert re.search(r"\d+ brokers? (was|were) killed", said)
    head, *frames = map(json.loads, record.read_text(encoding="utf-8").splitlines())
    assert head["version"] == 2
    assert any("was killed (SIGKILL)" in text for _, _, text in frames)
    assert {path.name for path in pictures.iterdir()} == {"demo.svg", "demo-run.svg", "demo-kill.svg", "demo-end.svg"}
    assert "share group page-jobs" in re.sub(r"&#160;", " ", (pictures / "demo.svg").read_text(encoding="utf-8"))
    assert not list(tmp_path.glob("ottla-demo-*"))
    assert processes_with(str(tmp_path / "ottla-demo-")) == []


def test_no_broker_outlives_a_demonstration_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.demo", "--no-spark", "--console", "127.0.0.1:0"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        assert process.stdout is not None
        eventually(lambda: "ready" in process.stdout.readline(), 60)
    finally:
        process.kill()
        process.communicate()
    eventually(lambda: processes_with(str(tmp_path / "ottla-demo-")) == [], 60)
