"""franz-go copies a topic in transactions, with the offsets of its group, and aborts some of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.transactions.conftest import Topic, produce
from tests.support.go_programs import compiled_program, needs_go
from tests.support.judged_broker import JudgedBroker
from tests.support.read_committed import read_committed

COUNT = 500

pytestmark = [needs_go, pytest.mark.soak, pytest.mark.timeout(900)]


def test_every_record_is_copied_once_and_what_was_aborted_is_hidden(broker: JudgedBroker, topic: Topic, name: str, tmp_path: Path) -> None:
    source, target = topic("-in"), topic("-out")
    values = [str(number) for number in range(COUNT)]
    produce(broker, source, *values)
    command = [str(compiled_program("copier", tmp_path)), broker.bootstrap, source, target, name, name, str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    commits, aborts = map(int, done.stdout.split())
    assert commits
    assert aborts
    assert [each.value for each in read_committed(broker, target)] == values
    assert len(read_committed(broker, target, level="read_uncommitted")) > COUNT
