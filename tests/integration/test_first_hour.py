"""What a new user meets in the first hour: dead brokers, taken addresses, missing topics. Each ends soon, with a line that says why."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.command_line import CommandLine, kill
from tests.support.serve_command import refused, tree

PATIENCE = 30.0
"""Seconds in which a command must end that is to end within a few, on a busy machine."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), log_segment_delete_delay_ms=0) as running:
        yield running


@pytest.fixture
def ottla(broker: BrokerProcess) -> CommandLine:
    return CommandLine(broker.bootstrap)


def begun(ottla: CommandLine, topic: str, *options: str) -> subprocess.Popen[bytes]:
    """A `produce` that has delivered one record, and waits for more."""
    ottla("topics", "create", topic)
    command = ottla.start("produce", "-v", *options, topic)
    assert command.stdin is not None
    assert command.stderr is not None
    command.stdin.write(b"first\n")
    command.stdin.flush()
    assert b"from offset 0" in command.stderr.readline()
    return command


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_produce_gives_up_after_the_delivery_timeout(tmp_path: Path, fault: signal.Signals) -> None:
    with a_broker(tmp_path) as broker:
        command = begun(CommandLine(broker.bootstrap), "t", "--delivery-timeout", "2")
        try:
            broker.signal(fault)
            began = time.monotonic()
            _, errors = command.communicate(b"second\n", PATIENCE)
            assert command.returncode == 1
            assert time.monotonic() - began > 1
            assert b"1 not delivered" in errors
        finally:
            kill(command)
            if fault is signal.SIGSTOP:
                broker.signal(signal.SIGCONT)


def test_a_second_interrupt_ends_produce_at_once(tmp_path: Path) -> None:
    with a_broker(tmp_path) as broker:
        command = begun(CommandLine(broker.bootstrap), "t")
        assert command.stdin is not None
        assert command.stderr is not None
        try:
            broker.kill()
            command.stdin.write(b"more than a pipe holds\n" * 50_000)  # so that some of it has been read
            command.stdin.flush()
            command.send_signal(signal.SIGINT)
            assert b"Ctrl-C again ends at once" in command.stderr.readline()
            command.send_signal(signal.SIGINT)
            assert command.wait(PATIENCE) == 1
            assert b"interrupted before all records were delivered" in command.stderr.read()
        finally:
            kill(command)


def test_a_group_without_coordinators_ends_after_the_timeout_and_the_broker_says_why(tmp_path: Path) -> None:
    with a_broker(tmp_path, offsets_topic_replication_factor=3) as broker:
        ottla = CommandLine(broker.bootstrap)
        ottla("topics", "create", "t")
        began = time.monotonic()
        ended = ottla("consume", "-G", "g", "--timeout", "1", "t", status=1)
        assert time.monotonic() - began < PATIENCE
        assert "COORDINATOR_NOT_AVAILABLE" in ended.err
        lines = [line for line in broker.log().splitlines() if "__consumer_offsets cannot be created" in line]
        assert len(lines) == 1
        assert "larger than available brokers: 1" in lines[0]
        assert "lower offsets.topic.replication.factor" in lines[0]


def test_produce_to_a_missing_topic_names_the_option_that_creates_it(ottla: CommandLine) -> None:
    assert "--create-topic" in ottla("produce", "missing", input="x\n", status=1).err


def test_reading_from_beyond_the_end_is_an_error(ottla: CommandLine) -> None:
    ottla("topics", "create", "short")
    ottla("produce", "short", input="x\n")
    assert "offset 5 is out of range: short-0 has offsets from 0 to 1" in ottla("consume", "-e", "-o", "5", "short", status=1).err
    assert ottla("consume", "-e", "-o", "1", "short").lines == []


def test_internal_topics_are_deleted_by_force_only(ottla: CommandLine, broker: BrokerProcess) -> None:
    ottla("topics", "create", "read")
    ottla("consume", "-e", "-G", "g", "read")
    assert "--force" in ottla("topics", "delete", "__consumer_offsets", status=1).err
    assert ottla("topics", "delete", "__consumer_offsets", "--force").out == "__consumer_offsets: deleted\n"
    # Fifty partitions were created and deleted, in a line for each step.
    for step in (": created in", " to a name with -delete", ": deleted from"):

        def lines(step: str = step) -> list[str]:
            return [line for line in broker.log_file.read_text().splitlines() if "__consumer_offsets-" in line and step in line]

        eventually(lambda lines=lines: sum(line.count("__consumer_offsets-[") for line in lines()) > 0, 20, step)
        assert len(lines()) < 10


def test_what_changes_something_prints_json(ottla: CommandLine) -> None:
    assert ottla("topics", "create", "a", "b", "--json").json == [{"name": name, "result": "created", "error": None} for name in ("a", "b")]
    ended = ottla("topics", "create", "a", "c", "--json", status=1)
    assert [found["error"] is None for found in ended.json] == [False, True]
    assert ottla("topics", "alter", "c", "-p", "2", "--json").json[0]["result"] == "2 partitions"
    changed = ottla("configs", "alter", "topic", "c", "--set", "retention.ms=1000", "--json")
    assert changed.json == [{"name": "topic c", "result": "changed", "error": None}]
    assert ottla("topics", "delete", "a", "b", "c", "--json").json[2] == {"name": "c", "result": "deleted", "error": None}


def test_brokers_and_their_log_directories(ottla: CommandLine, broker: BrokerProcess) -> None:
    ottla("topics", "create", "held", "-p", "2")
    ottla("produce", "-p", "1", "held", input="x\n")
    (found,) = ottla("brokers", "list", "--json").json["brokers"]
    assert (found["id"], found["port"], found["controller"], found["behind"]) == (1001, broker.port, True, 0)
    assert found["leads"] == found["replicas"] >= 2
    (directory,) = ottla("log-dirs", "held", "--json").json
    assert (directory["broker"], directory["path"], directory["error"]) == (1001, str(broker.data), None)
    assert [replica["bytes"] > 0 for replica in directory["replicas"]] == [False, True]
    assert [row[3] for row in ottla("log-dirs", "--replicas", "held").rows] == ["0", "1"]
    assert ottla("log-dirs", "--broker", "7", status=1).err.startswith("ottla: there is no broker 7")


def test_a_taken_address_leaves_a_new_directory_as_it_was(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(tmp_path, f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={tmp_path}/data")
    assert f"127.0.0.1:{port} cannot be bound: Address already in use; stop what uses the address" in said
    assert not (tmp_path / "data").exists()


def test_a_taken_address_leaves_a_crashed_directory_as_it_was(tmp_path: Path) -> None:
    with a_broker(tmp_path) as broker:
        ottla = CommandLine(broker.bootstrap)
        ottla("topics", "create", "t")
        ottla("produce", "t", input="x\n")
        broker.kill()
        with (broker.data / "t-0" / "00000000000000000000.log").open("ab") as log:
            log.write(b"torn")
        before = tree(broker.data)
        with socket.create_server(("127.0.0.1", broker.port)):
            refused(tmp_path, f"listeners=PLAINTEXT://127.0.0.1:{broker.port}", f"log.dirs={broker.data}")
        assert tree(broker.data) == before
        broker.start()
        assert CommandLine(broker.bootstrap)("consume", "-e", "t").lines == ["x"]


@pytest.mark.parametrize(("kind", "name"), [("user", "alice"), ("client", "app"), ("client", "default"), ("ip", "10.0.0.7")])
def test_the_configuration_of_a_client_is_its_quotas(ottla: CommandLine, kind: str, name: str) -> None:
    key = "connection_creation_rate" if kind == "ip" else "producer_byte_rate"
    assert "has no quotas" in ottla("configs", "describe", kind, name).err
    assert ottla("configs", "alter", kind, name, "--set", f"{key}=1000").out == f"{kind} {name}: changed\n"
    assert ottla("configs", "describe", kind, name).rows == [[key, "1000"]]
    assert ottla("configs", "describe", kind, name, "--json").json == [{"name": key, "value": 1000.0}]
    assert ottla("configs", "alter", kind, name, "--delete", key, "--json").json[0]["result"] == "changed"
    assert ottla("configs", "describe", kind, name, "--json").json == []
    assert "no list" in ottla("configs", "alter", kind, name, "--append", f"{key}=1", status=2).err
