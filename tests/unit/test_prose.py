"""Checks the prose of modules: first lines, subjects and lengths of sentences, and words of a private dialect."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = ("broker", "controller", "replication", "storage", "protocol", "config", "benchmarks", "tests/support")

DONE = {
    "benchmarks",
    "benchmarks/examples",
    "benchmarks/loadgen",
    "benchmarks/parts",
    "benchmarks/pipeline",
    "benchmarks/pipeline/copying",
    "broker",
    "broker/cli",
    "broker/cli/dump",
    "broker/client",
    "broker/cluster",
    "broker/configuration",
    "broker/coordination",
    "broker/fetching",
    "broker/groups",
    "broker/handlers",
    "broker/handlers/configs",
    "broker/handlers/control",
    "broker/handlers/data",
    "broker/handlers/groups",
    "broker/handlers/security",
    "broker/handlers/topics",
    "broker/loop",
    "broker/metrics",
    "broker/network",
    "broker/request",
    "broker/security",
    "broker/serving",
    "broker/supervisor",
    "broker/transactions",
    "config",
    "config/keys",
    "config/schema",
    "controller",
    "controller/admin",
    "controller/events",
    "controller/state",
    "controller/store",
    "controller/znodes",
    "protocol",
    "protocol/cursors",
    "protocol/messages",
    "protocol/records",
    "protocol/schema",
    "replication",
    "replication/control",
    "replication/follower",
    "replication/leader",
    "replication/ports",
    "replication/reading",
    "storage",
    "storage/cleaner",
    "storage/disk",
    "storage/log",
    "storage/manager",
    "storage/producers",
    "storage/segment",
    "storage/upkeep",
    "storage/validation",
    "tests/support",
    "tests/support/apache_kafka",
    "tests/support/transactional",
}
"""Folders whose modules keep the rules; a new folder belongs here."""

TO_DO = {
    "broker/handlers/transactions",
}
"""Folders that are older than the rules; the list only shrinks."""

MAX_WORDS = 30
"""Words in a sentence of a docstring's first paragraph; a reader takes in no more at once."""

NO_VERBS = {"This", "His", "Its", "As", "Whose", "Always", "Yes", "Thus"}
"""First words that end like a verb in the third person."""

ASIDE = re.compile(r"(?:Who|Whoever|Whom|What|Whatever)\b(?![^.]*\?)")
"""A sentence with a relative clause as its subject; a question is none."""

DIALECT = {
    r"ordinary way|out of the ordinary": "the common case",
    r"(?:is|are|was|were|be|been|being) told|told of": "name the call, the message or the report",
    r"(?:un)?settled?s?": "name the state",
    r"stands? before": "precedes",
    r"doors?": "name the entry point",
    r"pictures?": "metadata",
    r"ghosts?": "name what is left over",
    r"thaw(?:s|ed|ing)?": "copy on write",
    r"retire(?:s|d|ments?)?|retiring": "removed",
    r"whoever|whomever": "name the role",
    r"nobody|somebody|everybody|anybody": "name the role",
    r"mends?|mended|mending": "repair",
    r"gives? way|giving way": "yields",
    r"under way": "in progress, in flight",
    r"as much as so many|so many of": "give the unit",
    r"other life|another life|earlier life|this life": "incarnation",
}
"""Words that only this project uses so -> what to say instead."""


class Prose(NamedTuple):
    """A docstring or a comment."""

    line: int
    text: str
    is_docstring: bool


def folder_of(path: Path) -> str:
    return str(path.parent.relative_to(ROOT))


def modules(folders: set[str]) -> Iterator[tuple[Path, str]]:
    """Path and text of the modules directly in these folders."""
    for folder in sorted(folders):
        for path in sorted((ROOT / folder).glob("*.py")):
            yield path, path.read_text(encoding="utf-8")


def prose_of(text: str) -> Iterator[Prose]:
    """The docstrings, those of constants and attributes among them, and the comments of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Prose(node.lineno, node.value.value, True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Prose(token.start[0], token.string.lstrip("# "), False)


def sentences(text: str) -> list[str]:
    """The sentences of running text; code in backticks counts as one word."""
    flat = re.sub(r"`[^`]*`", "Code", " ".join(text.split()))
    return re.split(r"(?<=[.:;!?])\s+(?=[A-Z`])", flat)


def first_paragraph(docstring: str) -> str:
    """Its running text; lists, tables and indented examples are left out."""
    paragraph = docstring.strip().split("\n\n")[0]
    return "\n".join(line for line in paragraph.splitlines() if not re.match(r"\s*(?:[-*|]\s|\d+\. )", line))


def faults_of(path: Path, text: str) -> Iterator[str]:
    """Every violation in a module, with its place."""
    name = path.relative_to(ROOT)
    docstring = ast.get_docstring(ast.parse(text))
    opening = re.match(r"([A-Z][a-z]*s)[\s,]", docstring) if docstring is not None else None
    if docstring is not None and (opening is None or opening[1] in NO_VERBS):
        yield f"{name}:1 begins with no verb in the third person: {docstring.splitlines()[0]}"
    for prose in prose_of(text):
        where = f"{name}:{prose.line}"
        for sentence in sentences(prose.text):
            if ASIDE.match(sentence):
                yield f"{where} has a clause for a subject: {sentence}"
        for word, better in DIALECT.items():
            found = re.search(rf"\b(?:{word})\b", re.sub(r"`[^`]*`", "", prose.text), flags=re.IGNORECASE)
            if found:
                yield f"{where} says {found.group()!r}; better: {better}"
        if prose.is_docstring:
            for sentence in sentences(first_paragraph(prose.text)):
                if len(sentence.split()) > MAX_WORDS:
                    yield f"{where} has a sentence of {len(sentence.split())} words: {sentence}"


def test_every_folder_is_in_one_of_the_lists() -> None:
    found = {folder_of(path) for floor in FLOORS for path in (ROOT / floor).rglob("*.py")}
    assert found == DONE | TO_DO
    assert not DONE & TO_DO


@pytest.mark.parametrize("folder", sorted(DONE))
def test_a_reader_takes_in_each_sentence_at_once(folder: str) -> None:
    faults = [fault for path, text in modules({folder}) for fault in faults_of(path, text)]
    assert not faults, "\n".join(faults)
