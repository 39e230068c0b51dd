"""`ottla produce` and `ottla consume` against a broker: what goes in comes out, in every form."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import a_broker, eventually
from tests.support.command_line import CommandLine


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    directory = tmp_path_factory.mktemp("cli")
    # Some records have times of years ago, and the broker may live until it looks for those to delete.
    settings = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 1, "log_retention_ms": -1}
    with a_broker(directory, **settings) as broker:
        yield CommandLine(broker.bootstrap)


def topic(ottla: CommandLine, name: str, partitions: int = 1) -> str:
    ottla("topics", "create", name, "-p", str(partitions))
    return name


def test_lines_come_out_as_they_went_in(ottla: CommandLine) -> None:
    name = topic(ottla, "lines")
    text = "".join(f"line {number} äö\n" for number in range(3000))
    summary = ottla("produce", name, input=text).err
    assert re.match(r"3000 records \(\d+ bytes\) to 1 partition of lines in ", summary)
    assert ottla("consume", "-e", name).out == text


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec(ottla: CommandLine, codec: str) -> None:
    name = topic(ottla, f"codec-{codec}")
    text = "the same again\n" * 500
    ottla("produce", "-z", codec, "--batch-bytes", "2000", name, input=text)
    assert ottla("consume", "-e", name).out == text


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks(ottla: CommandLine, acks: str) -> None:
    name = topic(ottla, f"acks-{acks}")
    ottla("produce", "--acks", acks, "--batch-bytes", "300", name, input="x\n" * 100)
    assert eventually(lambda: ottla("consume", "-e", name).out == "x\n" * 100)


def test_keys_decide_the_partition_as_in_java(ottla: CommandLine) -> None:
    name = topic(ottla, "keys", 3)
    ottla("produce", "-K", ":", name, input="21:a\nfoobar:b\nabc:c\n21:d\nno key\n")
    lines = ottla("consume", "-e", "-f", "%p %k %s\\n", name).lines
    expected = {f"{(value & 0x7FFFFFFF) % 3} {key}" for key, value in (("21", -973932308), ("foobar", -790332482), ("abc", 479470107))}
    assert {line.rpartition(" ")[0] for line in lines if "no key" not in line} == expected
    assert [line for line in lines if " 21 " in line][-1].endswith(" d")


def test_headers_timestamps_partitions_and_nulls(ottla: CommandLine) -> None:
    name = topic(ottla, "everything", 2)
    ottla("produce", "-p", "1", "-k", "key", "-H", "a=1", "-H", "b=2", "--timestamp", "2023-11-14T22:13:20", "-Z", name, input="\nv\n")
    (first, second) = ottla("consume", "-e", "--json", name).json_lines
    assert first == {
        "topic": name,
        "partition": 1,
        "offset": 0,
        "timestamp": 1700000000000,
        "timestamp_type": "CreateTime",
        "key": "key",
        "value": None,
        "headers": [["a", "1"], ["b", "2"]],
    }
    assert second["value"] == "v"
    assert ottla("consume", "-e", "-Z", "-K", "=", "--print-offset", "--print-headers", "--print-timestamp", name).lines == [
        "everything-1@0\t1700000000000\ta=1,b=2\tkey=NULL",
        "everything-1@1\t1700000000000\ta=1,b=2\tkey=v",
    ]


def test_a_topic_is_copied_through_json_without_loss(ottla: CommandLine, tmp_path: Path) -> None:
    name, copy = topic(ottla, "original", 2), topic(ottla, "copy", 2)
    binary = tmp_path / "binary"
    binary.write_bytes(bytes(range(256)))
    ottla("produce", "--whole", "-k", "k", "-p", "1", name, str(binary))
    ottla("produce", "-K", ":", name, input="a:1\nb:2\n")
    lines = ottla("consume", "--json", "-e", name).out
    assert "value_base64" in lines
    ottla("produce", "--json", copy, input=lines)
    assert ottla("consume", "--json", "-e", copy).out.replace('"copy"', '"original"') == lines
    encoded = ottla("consume", "--json", "--base64", "-e", name).out
    ottla("produce", "--json", "--base64", copy, input=encoded)
    assert ottla("consume", "--json", "--base64", "-e", copy).out.count("\n") == 2 * encoded.count("\n")


def test_reading_begins_and_ends_where_it_is_told_to(ottla: CommandLine) -> None:
    name = topic(ottla, "ranges")
    for number in range(10):
        timestamp = 1_700_000_000_000 + number * 1000
        ottla("produce", "-q", "--timestamp", str(timestamp), name, input=f"{number}\n") if number in (0, 9) else None
    ottla("produce", "--json", name, input="".join(f'{{"value": "{n}", "timestamp": {1_700_000_010_000 + n}}}\n' for n in range(2, 10)))
    whole = ottla("consume", "-e", name).lines
    assert whole == ["0", "9", "2", "3", "4", "5", "6", "7", "8", "9"]
    assert ottla("consume", "-e", "-o", "-3", name).lines == whole[-3:]
    assert ottla("consume", "-e", "-o", "+3", name).lines == whole[3:]
    assert ottla("consume", "-e", "-o", "+99", name).lines == []
    assert ottla("consume", "-o", "4", "--until", "7", name).lines == whole[4:7]
    assert ottla("consume", "-o", "4", "-c", "2", name).lines == whole[4:6]
    assert ottla("consume", "-e", "-o", "@1700000010005", name).lines == ["5", "6", "7", "8", "9"]
    assert ottla("consume", "-o", "2", "--until", "@1700000010005", name).lines == ["2", "3", "4"]
    assert ottla("consume", "-e", "-o", "end", name).lines == []
    assert ottla("consume", "-e", f"{name}:0").lines == whole


def test_new_records_are_followed_until_interrupted(ottla: CommandLine, tmp_path: Path) -> None:
    name = topic(ottla, "followed")
    following = ottla.start("consume", "-f", "%s;", name)
    try:
        ottla("produce", name, input="one\ntwo\n")
        assert following.stdout is not None
        assert following.stdout.read(8) == b"one;two;"
        following.send_signal(signal.SIGINT)
        assert following.wait(90) == 0
    finally:
        following.kill()
        following.communicate()


def test_what_is_typed_is_sent_although_more_may_come(ottla: CommandLine) -> None:
    name = topic(ottla, "typed")
    typing = ottla.start("produce", name)
    try:
        assert typing.stdin is not None
        typing.stdin.write(b"first\n")
        typing.stdin.flush()
        assert ottla("consume", "-c", "1", name).lines == ["first"]
        typing.stdin.write(b"last without an end")
        typing.stdin.close()
        assert typing.wait(90) == 0
    finally:
        typing.kill()
        for stream in (typing.stdout, typing.stderr):
            assert stream is not None
            stream.close()
    assert ottla("consume", "-e", name).lines == ["first", "last without an end"]


def test_a_rate_is_kept(ottla: CommandLine) -> None:
    name = topic(ottla, "slow")
    summary = ottla("produce", "--rate", "50", name, input="x\n" * 40).err
    seconds = re.search(r"in (\d+\.\d) s", summary)
    assert seconds is not None
    assert float(seconds.group(1)) >= 0.7


def test_output_goes_to_a_file(ottla: CommandLine, tmp_path: Path) -> None:
    name = topic(ottla, "filed")
    ottla("produce", name, input="a\nb\n")
    assert ottla("consume", "-e", "-O", str(tmp_path / "out"), name).out == ""
    assert (tmp_path / "out").read_text() == "a\nb\n"


def test_files_are_produced_line_by_line(ottla: CommandLine, tmp_path: Path) -> None:
    name = topic(ottla, "files")
    for file in ("a", "b"):
        (tmp_path / file).write_text(f"{file}1\n{file}2\n")
    ottla("produce", name, str(tmp_path / "a"), "-", str(tmp_path / "b"), input="in\nbetween\n")
    assert ottla("consume", "-e", name).lines == ["a1", "a2", "in", "between", "b1", "b2"]


def test_a_group_goes_on_where_it_was(ottla: CommandLine) -> None:
    name = topic(ottla, "grouped", 3)
    ottla("produce", "-K", ":", name, input="".join(f"{n}:{n}\n" for n in range(30)))
    first = ottla("consume", "-G", "readers", "-c", "12", name)
    second = ottla("consume", "-G", "readers", "-e", name)
    assert len(first.lines) == 12
    assert sorted(map(int, first.lines + second.lines)) == list(range(30))
    assert ottla("consume", "-G", "readers", "-e", name).lines == []
    assert {row[4] for row in ottla("groups", "describe", "readers").rows[1:]} == {"0"}


def test_a_group_reads_the_topics_that_match_a_pattern(ottla: CommandLine) -> None:
    for name in ("match-a", "match-b", "other"):
        ottla("produce", topic(ottla, name), input=f"{name}\n")
    assert sorted(ottla("consume", "-G", "matching", "-e", "match-*").lines) == ["match-a", "match-b"]
    assert ottla("consume", "-G", "matching", "none-*", status=1).err == "ottla: no topic matches 'none-*'\n"


def test_a_group_whose_offset_is_gone_is_moved_by_the_command_that_the_error_names(ottla: CommandLine) -> None:
    name = topic(ottla, "gone")
    ottla("produce", name, input="one\ntwo\nthree\n")
    assert ottla("consume", "-G", "late", "-c", "1", name).lines == ["one"]
    ottla("topics", "delete-records", f"{name}:0", "-o", "2")
    refused = ottla("consume", "-G", "late", "-q", "-e", name, status=1).err
    assert refused.startswith("ottla: gone-0: offset 1 is out of range; ")
    ottla(*refused.rpartition(": ottla ")[2].split())
    assert ottla("consume", "-G", "late", "-e", name).lines == ["three"]


def test_two_members_share_the_partitions(ottla: CommandLine) -> None:
    name = topic(ottla, "shared", 2)
    members = [ottla.start("consume", "-G", "sharing", "-q", name) for _ in range(2)]
    try:

        def shared() -> bool:
            described = ottla("groups", "describe", "sharing", "--json", status=0 if found() else 1)
            return sorted(len(member["partitions"]) for member in described.json[0]["members"]) == [1, 1] if described.out else False

        def found() -> bool:
            return any(group["group"] == "sharing" for group in ottla("groups", "list", "--json").json)

        eventually(found)
        eventually(shared, 90)
        ottla("produce", "--json", name, input="".join(f'{{"value": "{n}", "partition": {n % 2}}}\n' for n in range(10)))
        outputs = []
        for member in members:
            assert member.stdout is not None
            outputs.append(sorted(int(member.stdout.readline()) for _ in range(5)))
        assert sorted(outputs) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
        for member in members:
            member.send_signal(signal.SIGINT)
            assert member.wait(90) == 0
    finally:
        for member in members:
            member.kill()
            member.communicate()
    assert ottla("groups", "list", "--state", "Empty", "--json").json


def test_what_goes_wrong_is_one_line(ottla: CommandLine) -> None:
    assert "topic nowhere: there is no such topic" in ottla("consume", "-e", "nowhere", status=1).err
    assert "topic nowhere: there is no such topic" in ottla("produce", "nowhere", input="x\n", status=1).err
    name = topic(ottla, "wrong")
    assert "has no partition 4: its last one is 0" in ottla("consume", "-e", f"{name}:4", status=1).err
    assert "has no partition 4" in ottla("produce", "-p", "4", name, input="x\n", status=1).err
    assert "standard input, line 2: it is not JSON" in ottla("produce", "--json", name, input='{"value": "x"}\nno\n', status=1).err
    assert ottla("consume", "-e", name).lines == ["x"]
    assert "out of range" in ottla("consume", "-o", "99", "-c", "1", name, status=1).err
    assert "MESSAGE_TOO_LARGE" in ottla("produce", name, input="x" * 2_000_000 + "\n", status=1).err
    assert "is none of start, end" in ottla("consume", "-o", "soon", name, status=2).err
    assert "is unknown" in ottla("consume", "-f", "%x", name, status=2).err
    nobody = CommandLine("127.0.0.1:1")
    assert nobody("topics", "list", status=1).err == "ottla: no broker can be reached at 127.0.0.1:1: Connection refused\n"


def test_the_summary_of_json_lines_is_json(ottla: CommandLine) -> None:
    name = topic(ottla, "summary", partitions=2)
    ottla("produce", "-p", "1", name, input="before\n")
    lines = "".join(f'{{"value": "{number}", "partition": {number % 2}}}\n' for number in range(4))
    written = [
        {"partition": 0, "records": 2, "first_offset": 0, "last_offset": 1},
        {"partition": 1, "records": 2, "first_offset": 1, "last_offset": 2},
    ]
    done = ottla("produce", "--json", name, input=lines)
    assert done.json.pop("bytes") > 0
    assert {**done.json, "bytes": 0} == {
        "topic": name, "records": 4, "bytes": 0, "not_delivered": 0, "error": None, "partitions": written,
    }  # fmt: skip
    assert done.err == ""
    failed = ottla("produce", "--json", name, input='{"value": "x"}\nno\n', status=1)
    assert failed.json["records"] == 1
    assert failed.json["error"] in failed.err
    assert ottla("produce", "--json", "--quiet", name, input=lines).out == ""
