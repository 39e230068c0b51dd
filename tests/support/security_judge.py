"""Asks Apache Kafka's own classes, and Java's, about texts and stores of security. See `java/SecurityJudge.java` for the questions."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from tests.support.apache_kafka import ensure_jars, process_guard
from tests.support.apache_kafka.java import QUICK_OPTIONS
from tests.support.apache_kafka.programs import in_class_path

JUDGE = Path(__file__).parent / "java" / "SecurityJudge.java"
SECONDS = 100
NO_RULE = "-"


class Verdict(NamedTuple):
    """A result, or with `is_refused` the reason of a refusal."""

    is_refused: bool
    text: str


def encoded(text: str | bytes) -> str:
    """An argument of a question."""
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


@contextmanager
def a_judge() -> Iterator[Callable[[Iterable[Sequence[str]]], list[Verdict]]]:
    """A JVM answers questions as often as needed, since it takes longer to start than to answer. Raises ToolMissingError."""
    opened = "--add-opens=java.base/sun.security.provider=ALL-UNNAMED"  # the reader of JAAS files
    command = ["java", *QUICK_OPTIONS, opened, *in_class_path(JUDGE, ensure_jars())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as jvm:
        process_guard().watch(jvm.pid)
        try:
            yield lambda questions: _answers(jvm, [*questions])
            jvm.communicate(timeout=SECONDS)
        finally:
            jvm.kill()
            process_guard().release(jvm.pid)


def verdicts(questions: Iterable[Sequence[str]]) -> list[Verdict]:
    """The answers to all questions, by one JVM. Raises ToolMissingError."""
    with a_judge() as ask:
        return ask(questions)


def _answers(jvm: subprocess.Popen[str], questions: Sequence[Sequence[str]]) -> list[Verdict]:
    assert jvm.stdin is not None
    assert jvm.stdout is not None
    with ThreadPoolExecutor(1) as writer:  # neither pipe takes all
        written = writer.submit(_write, jvm.stdin, questions)
        found = []
        for _ in questions:
            line = jvm.stdout.readline().rstrip("\n")
            assert line, "the judge has ended"
            text = NO_RULE if line == NO_RULE else base64.b64decode(line[1:]).decode()
            found.append(Verdict(line[0] == "!", text))
        written.result()
    return found


def _write(into: IO[str], questions: Sequence[Sequence[str]]) -> None:
    into.write("".join(" ".join(question) + "\n" for question in questions))
    into.flush()
