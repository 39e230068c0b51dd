"""franz-go copies a topic in transactions, with the offsets of its group, and aborts some of them. `make soak` runs this."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.transactions.conftest import Topic, produce
from tests.support.judged_broker import JudgedBroker
from tests.support.read_committed import read_committed

GO = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
PROGRAM = Path(__file__).parents[2] / "support" / "go" / "copier"
COUNT = 500

pytestmark = [
    pytest.mark.skipif(not os.environ.get("OTTLA_SOAK"), reason="to compile takes a minute; make soak runs it (OTTLA_SOAK=1)"),
    pytest.mark.skipif(GO is None, reason="there is no go"),
    pytest.mark.timeout(900),
]


def compiled(directory: Path) -> Path:
    """The copier. Skips the test when Go is too old, or cannot fetch the modules."""
    assert GO is not None
    binary = directory / "copier"
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    built = subprocess.run(
        [GO, "build", "-o", str(binary), "."], cwd=PROGRAM, env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    if built.returncode != 0 and ("requires go >= " in built.stderr or "dial tcp" in built.stderr):
        pytest.skip(f"the copier cannot be compiled: {built.stderr.strip()}")
    assert built.returncode == 0, built.stderr
    return binary


def test_every_record_is_copied_once_and_what_was_aborted_is_hidden(broker: JudgedBroker, topic: Topic, name: str, tmp_path: Path) -> None:
    source, target = topic("-in"), topic("-out")
    values = [str(number) for number in range(COUNT)]
    produce(broker, source, *values)
    command = [str(compiled(tmp_path)), broker.bootstrap, source, target, name, name, str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    commits, aborts = map(int, done.stdout.split())
    assert commits
    assert aborts
    assert [each.value for each in read_committed(broker, target)] == values
    assert len(read_committed(broker, target, level="read_uncommitted")) > COUNT
