"""The log on standard error: lines are there at once, and a reader that stands still stops no caller."""

import fcntl
import logging
import os
import select
import sys
import time
from collections.abc import Iterator

import pytest

from ottla.broker.logs import sink, standard_error
from ottla.broker.logs.setup import apply_configuration
from ottla.broker.logs.sink import MAX_LINES, LogSink
from ottla.config.broker import BrokerConfig

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sets the size of a pipe")

log = logging.getLogger("tests.of.standard.error")
PIPE_BYTES = 4096


class Pipe:
    """Stands for standard error. Its reader reads when it is told to."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(self.reader, False)
        self._rest = b""

    def take(self) -> list[str]:
        """The messages of the lines that are there now."""
        while True:
            try:
                self._rest += os.read(self.reader, 65536)
            except BlockingIOError:
                lines, _, self._rest = self._rest.rpartition(b"\n")
                return [line.split(" ", 3)[3].rpartition(" (")[0] for line in lines.decode().splitlines()]  # behind date, time, level

    def take_until(self, count: int) -> list[str]:
        """The messages of as many lines."""
        found: list[str] = []
        deadline = time.monotonic() + 20
        while len(found) < count:
            assert select.select((self.reader,), (), (), max(deadline - time.monotonic(), 0))[0], f"{len(found)} of {count}"
            found += self.take()
        return found


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    made = Pipe()
    monkeypatch.setattr(standard_error, "DESCRIPTOR", made.writer)
    yield made
    os.close(made.reader)
    os.close(made.writer)


@pytest.fixture
def written(pipe: Pipe) -> Iterator[LogSink]:
    """Text for standard error, as without any setting."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    made = apply_configuration(BrokerConfig({}))
    root.setLevel(logging.INFO)
    yield made
    made.close()
    root.setLevel(level)
    for handler in handlers:
        root.addHandler(handler)


def fill(written: LogSink) -> list[str]:
    """Log until more lines wait than the pipe holds; the messages."""
    said: list[str] = []
    while written.handler.queue.qsize() < PIPE_BYTES / 100:
        said.append(f"line {len(said):04d} {'x' * 150}")
        log.info(said[-1])
    return said


def test_a_line_is_there_when_the_caller_goes_on(written: LogSink, pipe: Pipe) -> None:
    assert written.is_plain
    for number in range(3):
        log.info("line %d", number)
        assert pipe.take() == [f"line {number}"]


def test_a_reader_that_stands_still_stops_no_caller_and_gets_all_lines_in_order(written: LogSink, pipe: Pipe) -> None:
    said = fill(written)
    said += [f"more {number}" for number in range(100)]
    for each in said[-100:]:
        log.info(each)
    assert pipe.take_until(len(said)) == said
    assert written.dropped == 0


def test_a_line_that_is_longer_than_the_pipe_stops_no_caller(written: LogSink, pipe: Pipe) -> None:
    log.info("x" * 3 * PIPE_BYTES)
    log.info("next")
    found = b""
    deadline = time.monotonic() + 20
    while b"next" not in found:
        assert select.select((pipe.reader,), (), (), max(deadline - time.monotonic(), 0))[0]
        found += os.read(pipe.reader, 65536)
    assert found.count(b"x") > 3 * PIPE_BYTES - 1
    assert found.count(b"\n") == 2


@pytest.mark.slow
def test_lines_that_find_the_queue_full_are_counted(written: LogSink, pipe: Pipe) -> None:
    fill(written)
    for _ in range(MAX_LINES):
        log.info("more")
    dropped = written.dropped
    assert dropped > 0
    found: list[str] = []
    while f"{dropped} log lines were dropped: they came faster than they can be written" not in found:
        found += pipe.take_until(1)
    assert 0 < found.count("more") == MAX_LINES - dropped


def test_a_reader_that_stands_still_does_not_keep_the_process(written: LogSink, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "END_SECONDS", 0.1)
    said = fill(written)
    began = time.monotonic()
    written.close()
    assert time.monotonic() - began < 5
    assert pipe.take_until(len(said)) == said


def test_without_a_reader_lines_are_lost_and_nothing_else(written: LogSink, pipe: Pipe) -> None:
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), pipe.reader)
    log.info("one")
    log.info("x" * 2 * PIPE_BYTES)
    assert written.dropped == 0
