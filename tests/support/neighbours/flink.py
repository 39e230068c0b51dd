"""Runs the job of `FlinkCopy.java` in a process with a Flink of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.apache_kafka.java import QUICK_OPTIONS, JavaServer
from tests.support.neighbours.artifacts import FLINK

_PROGRAM = Path(__file__).parents[1] / "java" / "FlinkCopy.java"
_OPENED = ("java.lang", "java.util", "java.util.concurrent", "java.net", "java.nio", "java.time", "java.io", "java.text")
"""Packages that Flink's own start scripts open for its reflection."""


@contextmanager
def a_copy(bootstrap: str, directory: Path) -> Iterator[JavaServer]:
    """The job runs when the block begins, and is ended after it."""
    directory.mkdir()
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    command = [
        "java", "-Xmx512m", *QUICK_OPTIONS, *opened, f"-Djava.io.tmpdir={directory}", "-cp", f"{FLINK.jars()}/*", str(_PROGRAM),
        bootstrap, str(directory / "checkpoints"),
    ]  # fmt: skip
    job = JavaServer("the job of Flink", directory / "flink.log")
    job.launch(command)
    try:
        yield job
        assert job.running, "the job of Flink has ended"
    except BaseException:
        print(f"--- Flink\n{job.said()[-6_000:]}")
        raise
    finally:
        job.end()
