"""franz-go in groups of both protocols, and sarama in classic ones and in transactions: members share partitions, leave, and are killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.command_line import CommandLine
from tests.support.go_programs import compiled_program, needs_go
from tests.support.neighbours.artifacts import whole
from tests.support.read_committed import read_committed

pytestmark = [needs_go, whole, pytest.mark.slow, pytest.mark.timeout(900)]  # Go compiles its standard library, a minute of processor time

PARTITIONS = 4
SECONDS = 90
KINDS = {"classic": "Classic", "consumer": "Consumer", "sarama": "Classic"}
"""The type of the group that a kind of member makes."""
CONFIG = {
    "num_partitions": PARTITIONS,
    "group_initial_rebalance_delay_ms": 0,
    "group_consumer_heartbeat_interval_ms": 300,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_session_timeout_ms": 3_000,
    "group_consumer_min_session_timeout_ms": 1_000,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The members."""
    return compiled_program("members", tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), **CONFIG) as running:
        yield running


class GoMember:
    """A running program. Its output is in a file."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    def _lines(self) -> list[str]:
        assert self.process.poll() in (None, 0), self._output.with_suffix(".errors").read_text()
        return self._output.read_text().splitlines()

    def read(self) -> list[int]:
        """The values, in the order in which they were read."""
        return [int(line) for line in self._lines() if not line.startswith("assigned")]

    def partitions(self) -> list[int]:
        """The partitions that the member had last."""
        changes = [line for line in self._lines() if line.startswith("assigned")]
        return [int(word) for word in changes[-1].split()[1:]] if changes else []

    def leave(self) -> None:
        """Ends the program, which leaves the group."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(SECONDS) == 0


@contextmanager
def a_member(program: Path, output: Path, *arguments: str) -> Iterator[GoMember]:
    """A member, until it leaves or the context ends."""
    with (
        open(output, "wb") as out,
        open(output.with_suffix(".errors"), "wb") as errors,
        subprocess.Popen([program, *arguments], stdin=subprocess.PIPE, stdout=out, stderr=errors) as process,
    ):
        try:
            yield GoMember(process, output)
        finally:
            process.kill()


def fill(broker: BrokerProcess, topic: str, numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def are_shared(*members: GoMember) -> bool:
    """Whether every partition has one member, and every member some."""
    assigned = [member.partitions() for member in members]
    return all(assigned) and sorted(each for part in assigned for each in part) == list(range(PARTITIONS))


@pytest.mark.parametrize("kind", KINDS)
def test_members_share_the_partitions_and_the_last_reads_on(program: Path, broker: BrokerProcess, kind: str, tmp_path: Path) -> None:
    fill(broker, kind, range(100))
    arguments = (kind, broker.bootstrap, kind, kind)
    with a_member(program, tmp_path / "first", *arguments) as first, a_member(program, tmp_path / "second", *arguments) as second:
        eventually(lambda: are_shared(first, second), SECONDS, "two members share the partitions")
        listed = CommandLine(broker.bootstrap)("groups", "list", "--json").json
        assert [row["type"] for row in listed if row["group"] == kind] == [KINDS[kind]]
        fill(broker, kind, range(100, 200))
        eventually(lambda: {*first.read(), *second.read()} == set(range(200)), SECONDS, "all records are read")
        first.leave()
        eventually(lambda: are_shared(second), SECONDS, "the second member has all partitions")
        with a_member(program, tmp_path / "third", *arguments) as third:
            eventually(lambda: are_shared(second, third), SECONDS, "the third member has a share")
            second.process.kill()
            eventually(lambda: are_shared(third), SECONDS, "the member that was killed has lost its partitions")
            fill(broker, kind, range(200, 300))
            eventually(lambda: set(third.read()) >= set(range(200, 300)), SECONDS, "the third member reads everything")
            third.leave()
    (described,) = CommandLine(broker.bootstrap)("groups", "describe", kind, "--json").json
    assert {each["lag"] for each in described["partitions"]} == {0}


def test_members_of_both_protocols_share_a_group(program: Path, broker: BrokerProcess, tmp_path: Path) -> None:
    fill(broker, "both", range(100))
    with a_member(program, tmp_path / "old", "sarama", broker.bootstrap, "both", "both") as old:
        eventually(lambda: are_shared(old), SECONDS, "the member of the classic protocol has all partitions")
        with a_member(program, tmp_path / "new", "consumer", broker.bootstrap, "both", "both") as new:
            eventually(lambda: are_shared(old, new), SECONDS, "both members have partitions")
            fill(broker, "both", range(100, 200))
            eventually(lambda: {*old.read(), *new.read()} == set(range(200)), SECONDS, "all records are read")
            old.leave()
            eventually(lambda: are_shared(new), SECONDS, "the member of the new protocol has all partitions")
            new.leave()


def test_a_copy_by_sarama_has_every_record_once(program: Path, broker: BrokerProcess, tmp_path: Path) -> None:
    fill(broker, "source", range(40))
    with a_member(program, tmp_path / "copy", "copy", broker.bootstrap, "copiers", "source", "target") as copier:
        eventually(lambda: len(copier.read()) == 40, SECONDS, "all records are copied")
        copier.leave()
    copied = [int(each.value) for each in read_committed(broker, "target", PARTITIONS)]
    assert sorted(copied) == list(range(40))
    assert len(read_committed(broker, "target", PARTITIONS, level="read_uncommitted")) > 40
    (described,) = CommandLine(broker.bootstrap)("groups", "describe", "copiers", "--json").json
    assert {each["lag"] for each in described["partitions"]} == {0}
