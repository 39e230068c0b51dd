"""Asks Apache Kafka's own classes, and Java's, about texts and stores of security. See `java/SecurityJudge.java` for the questions."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.apache_kafka import ensure_jars
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


def verdicts(questions: Iterable[Sequence[str]]) -> list[Verdict]:
    """The answers to all questions, by one JVM, since a JVM takes longer to start than to answer. Raises ToolMissingError."""
    lines = "".join(" ".join(question) + "\n" for question in questions)
    opened = "--add-opens=java.base/sun.security.provider=ALL-UNNAMED"  # the reader of JAAS files
    command = ["java", *QUICK_OPTIONS, opened, *in_class_path(JUDGE, ensure_jars())]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=SECONDS, check=True)
    found = []
    for line in done.stdout.splitlines():
        text = NO_RULE if line == NO_RULE else base64.b64decode(line[1:]).decode()
        found.append(Verdict(line[0] == "!", text))
    return found
