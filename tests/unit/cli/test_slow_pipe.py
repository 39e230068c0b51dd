"""A member of a group whose output goes to a slow reader sends its heartbeats, commits what was read, and ends with a whole record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest

from ottla.cli import consume
from ottla.cli.consume import _Membership, _Sink
from ottla.cli.records import slow_pipe
from ottla.cli.records.slow_pipe import SlowPipe
from ottla.client.fetcher import FetchedBatch
from ottla.protocol.records.batch import TimestampType
from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition

LINE = b"x" * 999 + b"\n"
P0 = TopicPartition("t", 0)


@contextmanager
def a_pipe() -> Iterator[tuple[int, IO[bytes]]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        with os.fdopen(writing, "wb") as out:
            yield reading, out
    finally:
        os.close(reading)


def test_a_long_write_calls_back_while_the_reader_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_pipe, "_WAIT_SECONDS", 0.001)
    read = bytearray()
    calls = 0

    with a_pipe() as (reading, out):

        def beat() -> None:
            nonlocal calls
            calls += 1
            if calls % 3 == 0:
                read.extend(os.read(reading, 100_000))

        pipe = SlowPipe(out, beat)
        pipe.writelines([LINE] * 500)
        pipe.flush()
        read.extend(os.read(reading, 1_000_000))
    assert bytes(read) == LINE * 500
    assert calls > 3


def test_an_interrupted_write_is_completed() -> None:
    with a_pipe() as (reading, out):

        def interrupt() -> None:
            raise KeyboardInterrupt

        pipe = SlowPipe(out, interrupt)
        pipe._next_call = 0.0
        pipe.writelines([LINE] * 10)
        with pytest.raises(KeyboardInterrupt):
            pipe.flush()
        pipe.complete()
        assert os.read(reading, 1_000_000) == LINE * 10


class Member:
    """A member whose group rebalances at its second heartbeat."""

    def __init__(self) -> None:
        self.heartbeats = 0
        self.committed: list[dict[TopicPartition, int]] = []

    def tend(self) -> bool:
        self.heartbeats += 1
        return self.heartbeats < 2

    def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self.committed.append(offsets)


class Fetcher:
    """Has three batches in one answer."""

    def __init__(self) -> None:
        self.positions = {P0: 0}

    def poll(self, _: float) -> Iterator[FetchedBatch]:
        for offset in range(3):
            yield FetchedBatch(P0, TimestampType.CREATE_TIME, [Record(offset, 0, None, b"v", ())], offset + 1)


def test_a_slow_output_commits_and_sends_heartbeats_between_two_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "_COMMIT_SECONDS", 0.0)
    member: Any = Member()
    fetcher: Any = Fetcher()
    cluster: Any = None
    with a_pipe() as (reading, out):
        sink = _Sink(out, lambda batch: iter([record.value or b"" for record in batch.records]), None)
        sink.wait_with(member.tend)
        assert not _Membership(cluster, "g", member, 0, None, sink, commits=True)._read(fetcher)
        assert os.read(reading, 100) == b"vv"
    assert member.committed == [{P0: 1}, {P0: 2}]
