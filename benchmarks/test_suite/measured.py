"""Notes what a suite measures, as JSON in the file that SUITE_RESULT names."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

PER_TEST = os.environ.get("SUITE_PER_TEST") == "1"
SCOPE: Final[Literal["function", "session"]] = "function" if PER_TEST else "session"
"""Scope of the broker."""

_ready_s: list[float] = []
_topic_ms: list[float] = []
_peak_bytes: list[int] = []


@contextmanager
def starting() -> Iterator[None]:
    """Measures the start of a broker."""
    begin = time.perf_counter()
    yield
    _ready_s.append(time.perf_counter() - begin)


@contextmanager
def making_a_topic() -> Iterator[None]:
    """Measures what a test needs of its own."""
    begin = time.perf_counter()
    yield
    _topic_ms.append((time.perf_counter() - begin) * 1000)


def note_memory(process_id: int) -> None:
    """Notes the largest resident memory of a broker so far."""
    lines = Path(f"/proc/{process_id}/status").read_text(encoding="ascii").splitlines()
    _peak_bytes.extend(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def pytest_sessionfinish() -> None:
    """Writes the results."""
    topic_ms = sorted(_topic_ms)
    found = {"ready_s": sorted(_ready_s)[len(_ready_s) // 2], "topic_ms": topic_ms[len(topic_ms) // 2], "peak_bytes": max(_peak_bytes)}
    Path(os.environ["SUITE_RESULT"]).write_text(json.dumps(found), encoding="ascii")
