"""Checkpoint files: Kafka's text, whole or not at all."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk import checkpoint
from ottla.storage.disk.checkpoint import OffsetCheckpoint, replace_file
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.errors import CorruptCheckpoint
from tests.support.examples import number_of
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.golden_logs import LOGS

NAME = "recovery-point-offset-checkpoint"
GOLDEN = sorted(LOGS.glob("*/*-offset-checkpoint"))


def with_file(content: bytes) -> MemoryFileSystem:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("/data")
    filesystem.open(f"/data/{NAME}", create=True).write(content)
    return filesystem


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parts[-2]}/{path.name}")
def test_a_recorded_checkpoint_is_written_again_to_the_same_bytes(path: Path, tmp_path: Path) -> None:
    filesystem = RealFileSystem()
    offsets = OffsetCheckpoint(str(path.parent), path.name, filesystem).read()
    OffsetCheckpoint(str(tmp_path), path.name, filesystem).write(offsets)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
offsets_by_partition = st.dictionaries(
    st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1)), st.integers(-1, 2**63 - 1), max_size=10
)


@settings(max_examples=100, deadline=None)
@given(offsets_by_partition)
def test_what_is_written_is_read_again(offsets: dict[TopicPartition, int]) -> None:
    checkpoint = OffsetCheckpoint("/data", NAME, with_file(b"an older and longer file" * 100))
    checkpoint.write(offsets)
    assert checkpoint.read() == offsets
    assert list(checkpoint.read()) == list(offsets)


def test_without_a_file_there_are_no_offsets() -> None:
    assert OffsetCheckpoint("/data", NAME, MemoryFileSystem()).read() == {}


def test_in_an_empty_file_as_apache_kafka_creates_it_there_are_no_offsets() -> None:
    assert OffsetCheckpoint("/data", NAME, with_file(b"")).read() == {}


GARBAGE = [
    pytest.param(b"1\n0\n", "line 1", id="another version"),
    pytest.param(b"0\n\n", "line 2", id="no count"),
    pytest.param(b"0\nx\n", "line 2", id="count is no number"),
    pytest.param(b"0\n2\nt 0 1\n", "line 2 has 2 as the number of entries, but 1 follow", id="too few entries"),
    pytest.param(b"0\n0\nt 0 1\n", "line 2 has 0 as the number of entries, but 1 follow", id="too many entries"),
    pytest.param(b"0\n1\nt 0\n", "line 3", id="too few fields"),
    pytest.param(b"0\n2\nt 0 1\nt x 1\n", "line 4: 't x 1'", id="partition is no number"),
    pytest.param(b"0\n1\nt 0 1-\n", "line 3", id="offset is no number"),
    pytest.param(b"0\n1\nt 0 9223372036854775808\n", "line 3: 't 0 9223372036854775808' has a number that is too large", id="large offset"),
    pytest.param(b"0\n1\nt 2147483648 0\n", "too large", id="large partition"),
    pytest.param(b"0\n1\nt 0 \xff\n", "byte 8 is not UTF-8", id="not text"),
]


@pytest.mark.parametrize(
    ("content", "offsets"), [(b"", {}), (b"0\n", {}), (b"0", {}), (b"0\r\n1\r\nt 0 7\r\n", {TopicPartition("t", 0): 7})]
)
def test_what_apache_kafka_reads_is_read(content: bytes, offsets: dict[TopicPartition, int]) -> None:
    assert OffsetCheckpoint("/data", NAME, with_file(content)).read() == offsets


@pytest.mark.parametrize(("content", "where"), GARBAGE)
def test_garbage_is_refused_with_file_and_line(content: bytes, where: str) -> None:
    with pytest.raises(CorruptCheckpoint) as caught:
        OffsetCheckpoint("/data", NAME, with_file(content)).read()
    assert str(caught.value).startswith(f"/data/{NAME}: ")
    assert where in str(caught.value)


def test_whichever_call_fails_the_old_file_or_the_new_one_is_there() -> None:
    calls = 0
    for fail_at in range(1, 20):
        inner = with_file(b"old")
        filesystem = FaultyFileSystem(inner)
        filesystem.fail_at = fail_at
        try:
            replace_file(filesystem, f"/data/{NAME}", b"new")
        except OSError:
            assert inner.read_file(f"/data/{NAME}") in (b"old", b"new")
            calls += 1
        else:
            break
    assert calls >= 5
    assert inner.read_file(f"/data/{NAME}") == b"new"


@pytest.mark.parametrize("seed", range(number_of(10)))
def test_a_power_cut_after_a_replacement_leaves_the_new_file(seed: int) -> None:
    filesystem = with_file(b"old")
    replace_file(filesystem, f"/data/{NAME}", b"new content")
    assert filesystem.after_power_cut(seed).read_file(f"/data/{NAME}") == b"new content"


def test_a_checkpoint_of_thousands_of_partitions_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[None] = []
    monkeypatch.setattr(checkpoint, "yield_to_loop", lambda: turns.append(None))
    filesystem = MemoryFileSystem()
    filesystem.make_directory("/data")
    for count in (999, 1000, 2500):
        offsets = {TopicPartition(f"topic-{number % 7}", number): number for number in range(count)}
        file = OffsetCheckpoint("/data", NAME, filesystem)
        file.write(offsets)
        assert file.read() == offsets
    assert len(turns) == 0 + 1 + 2  # it is long, and others want to run
