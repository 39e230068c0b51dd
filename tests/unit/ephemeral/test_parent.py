"""The watch over the parent of an ephemeral broker: lines of standard input, and its end."""

import asyncio
import os
import threading

import pytest

from ottla.ephemeral import parent
from ottla.ephemeral.parent import Parent


def heard_of(written: bytes, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that a broker hears until its standard input is closed."""
    reading, writing = os.pipe()
    monkeypatch.setattr(parent, "STANDARD_INPUT", reading)

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(written)

    async def watch() -> list[bytes]:
        ended = asyncio.Event()
        lines: list[bytes] = []
        watching = Parent(ended.set, lines.append)
        watching.watch()
        async with asyncio.timeout(20):
            await ended.wait()
        return lines

    thread = threading.Thread(target=write)
    thread.start()
    try:
        return asyncio.run(watch())
    finally:
        os.close(reading)
        thread.join()


def test_lines_arrive_whole_however_long_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    long = b"x" * 300_000
    assert heard_of(b"one\n\n" + long + b"\ntwo\nno end", monkeypatch) == [b"one", long, b"two"]


def test_the_first_process_of_a_container_hears_of_the_end_by_its_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 0)
    assert heard_of(b"one\n", monkeypatch) == [b"one"]


def test_a_line_that_is_too_long_ends_the_broker_and_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(parent, "MAX_LINE_BYTES", 1000)
    assert heard_of(b"one\n" + b"x" * 1001, monkeypatch) == []
    assert "a command on standard input is longer than 1000 bytes" in caplog.text
