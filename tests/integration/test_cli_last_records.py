"""`ottla consume -o -N` counts records, and no record writes control characters to a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.support.broker_process import a_broker
from tests.support.command_line import CommandLine

ESCAPES = b"\x1b[2J\x1b]0;owned\x07\r\x7f"


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    config = {"transaction_state_log_num_partitions": 1, "transaction_state_log_replication_factor": 1}
    with a_broker(tmp_path_factory.mktemp("last"), offsets_topic_num_partitions=1, **config) as broker:
        yield CommandLine(broker.bootstrap)


def a_topic(ottla: CommandLine, name: str, partitions: int = 1) -> str:
    ottla("topics", "create", name, "-p", str(partitions))
    return name


def produce_transactions(ottla: CommandLine, topic: str, *transactions: tuple[list[str], bool]) -> None:
    """Each has its records, and whether it commits; a marker follows each."""
    producer = Producer({"bootstrap.servers": ottla.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for records, commits in transactions:
        producer.begin_transaction()
        for record in records:
            producer.produce(topic, record, partition=0)
        producer.flush(60)
        (producer.commit_transaction if commits else producer.abort_transaction)(60)


def test_markers_are_no_records(ottla: CommandLine) -> None:
    topic = a_topic(ottla, "markers")
    produce_transactions(ottla, topic, (["a", "b"], True), (["c"], True), (["d"], False), (["e"], True))
    for count, last in ((1, ["e"]), (2, ["d", "e"]), (3, ["c", "d", "e"]), (5, list("abcde")), (9, list("abcde"))):
        assert ottla("consume", "-e", "-o", f"-{count}", topic).lines == last
    for count, last in ((1, ["e"]), (2, ["c", "e"]), (4, ["a", "b", "c", "e"])):
        assert ottla("consume", "-e", "--read-committed", "-o", f"-{count}", topic).lines == last
    assert ottla("consume", "-e", "-o", "-0", topic).lines == []


def test_many_markers_in_a_row_are_passed(ottla: CommandLine) -> None:
    topic = a_topic(ottla, "aborted", 2)
    ottla("produce", "-p", "1", topic, input="1\n2\n3\n")
    produce_transactions(ottla, topic, (["first"], True), *[(["x"], False)] * 20)
    ottla("produce", "-p", "0", topic, input="")
    assert sorted(ottla("consume", "-e", "--read-committed", "-o", "-1", topic).lines) == ["3", "first"]
    assert sorted(ottla("consume", "-e", "-o", "-2", topic).lines) == ["2", "3", "x", "x"]


def test_an_empty_partition_has_no_last_record(ottla: CommandLine) -> None:
    assert ottla("consume", "-e", "-o", "-1", a_topic(ottla, "empty")).lines == []


@pytest.fixture(scope="module")
def hostile(ottla: CommandLine) -> str:
    """A topic with one record."""
    topic = a_topic(ottla, "hostile")
    producer = Producer({"bootstrap.servers": ottla.bootstrap})
    producer.produce(topic, b"a\tb\n" + ESCAPES + b"\x9b31m\xc2\x9bc\xe2\x80\xae \xc3\xbc", key=ESCAPES, headers=[("h\x1b[A", ESCAPES)])
    producer.flush(60)
    return topic


@pytest.mark.parametrize("options", [[], ["-K", "="], ["--print-headers"], ["-f", "%t %p %o %k=%s %h %R %S\\n"], ["--json"]], ids=" ".join)
def test_a_terminal_gets_no_control_character_of_a_record(ottla: CommandLine, hostile: str, options: list[str]) -> None:
    shown = ottla.on_terminal("consume", "-q", "-e", *options, hostile)
    text = shown.decode()
    assert not [char for char in text if (char < " " and char not in "\t\n") or "\x7f" <= char <= "\x9f" or char == "\u202e"]
    if "--json" in options:
        assert "\\u001b" in text
        assert json.loads(text)["headers"]
    else:
        assert "a\tb\n\\u001b[2J\\u001b]0;owned\\u0007\\u000d\\u007f\\x9b31m\\u009bc\\u202e ü" in text


def test_the_format_of_the_user_reaches_a_terminal(ottla: CommandLine, hostile: str) -> None:
    assert ottla.on_terminal("consume", "-q", "-e", "-f", "\\x1b[1m%o\\x1b[0m", hostile) == b"\x1b[1m0\x1b[0m"


def test_a_pipe_and_raw_get_the_bytes(ottla: CommandLine, hostile: str) -> None:
    value = b"a\tb\n" + ESCAPES + b"\x9b31m\xc2\x9bc\xe2\x80\xae \xc3\xbc"
    assert ottla("consume", "-e", hostile).out.encode(errors="surrogateescape") == value + b"\n"
    assert ottla.on_terminal("consume", "-q", "-e", "--raw", hostile) == value + b"\n"
