"""Checks the prose of modules, messages and pages: first lines, subjects and lengths of sentences, and words of a private dialect."""

import ast
import re
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("broker", "coordination", "controller", "replication", "storage", "protocol", "config")
FLOORS = (*PRODUCT, "ottla", "pytest-ottla/pytest_ottla", "benchmarks", "tests/support")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "pytest-ottla/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]

MAX_WORDS = 30
"""Words in a sentence of a docstring's first paragraph; a reader takes in no more at once."""

PRONOUN = re.compile(
    r"\b(?:it|they|them|theirs"
    r"|(?:this|that|these|those)(?= (?:is|are|was|were|of|has|have|had|in|on|with|which|who|whose)\b|[,.;:)]|$)|those(?= that\b)"
    r"|ones?(?= of them|[,.;:)]))\b",
    flags=re.IGNORECASE,
)
"""Stands for something that is named elsewhere. Possessives are not counted, nor is "that" as the beginning of a clause."""

MAX_PRONOUNS = 3
"""Pronouns in a sentence; of more, a reader no longer knows what each stands for."""

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
    r"in work": "in progress",
    r"strangers?": "unauthenticated clients",
    r"st(?:ands?|anding|ood) still": "is blocked, is suspended, does not move",
    r"(?:is|are|was|were|be|been) put out": "removed",
    r"for ever": "forever",
}
"""Words that only this project uses so -> what to say instead."""

ABOUT_FIGURES = {r"pictures?"}
"""Of these words, those that pages use in their usual sense."""

ANY_DIALECT = re.compile(rf"\b(?:{'|'.join(DIALECT)})\b", flags=re.IGNORECASE)
"""Finds whether a text has any of the words. Nearly none has, and one expression takes a fraction of the time of all."""


STRING_OR_COMMENT = re.compile(
    r'''"""(?:\\.|[^\\])*?"""|\'{3}(?:\\.|[^\\])*?\'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(#[^\n]*)''', flags=re.DOTALL
)
"""Finds the comments of a module as a group, and passes over its strings, in a tenth of the time of `tokenize`."""


class Prose(NamedTuple):
    """A docstring or a comment."""

    line: int
    text: str
    is_docstring: bool


class Module(NamedTuple):
    """What is read of a module; its tree would take much memory."""

    docstring: str | None
    prose: list[Prose]
    messages: list[tuple[int, str]]
    """The texts of log lines and errors: all strings of several words but docstrings."""


def folder_of(path: Path) -> str:
    return str(path.parent.relative_to(ROOT))


@cache
def read(path: Path) -> Module:
    """Each module is parsed once."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstrings, strings = [], []
    for node in nodes_of(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.append(node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") > 1:
            strings.append(node)
    prose = [Prose(node.lineno, str(node.value), True) for node in docstrings]
    messages = [(node.lineno, str(node.value)) for node in set(strings).difference(docstrings)]
    return Module(ast.get_docstring(tree), [*prose, *comments_of(text)], sorted(messages))


def nodes_of(tree: ast.AST) -> Iterator[ast.AST]:
    """As `ast.walk`, in another order and half the time."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for value in vars(node).values():
            if isinstance(value, ast.AST):
                left.append(value)
            elif isinstance(value, list):
                left += [each for each in value if isinstance(each, ast.AST)]


def comments_of(text: str) -> Iterator[Prose]:
    line, at = 1, 0
    for found in STRING_OR_COMMENT.finditer(text):
        if found[1]:
            line += text.count("\n", at, found.start())
            at = found.start()
            yield Prose(line, found[1].lstrip("# "), False)


def sentences(text: str) -> list[str]:
    """The sentences of running text; code in backticks counts as one word."""
    flat = re.sub(r"`[^`]*`", "Code", " ".join(text.split()))
    return re.split(r"(?<=[.:;!?])\s+(?=[A-Z`])", flat)


def first_paragraph(docstring: str) -> str:
    """Its running text; lists, tables and indented examples are left out."""
    paragraph = docstring.strip().split("\n\n")[0]
    return "\n".join(line for line in paragraph.splitlines() if not re.match(r"\s*(?:[-*|]\s|\d+\. )", line))


def chains_in(paragraph: str) -> Iterator[str]:
    """The sentences that have too many pronouns; cells of a table are sentences of their own."""
    for cell in paragraph.split(" | "):
        if len(PRONOUN.findall(cell)) > MAX_PRONOUNS:
            for sentence in sentences(cell):
                if (count := len(PRONOUN.findall(sentence))) > MAX_PRONOUNS:
                    yield f"has {count} pronouns in a sentence; name the things: {sentence}"


def dialect_in(text: str, permitted: Set[str] = frozenset()) -> Iterator[str]:
    """The words of the private dialect in a text, without its code, and what to say instead."""
    plain = re.sub(r"`[^`]*`", "", text)
    if not ANY_DIALECT.search(plain):
        return
    for word, better in DIALECT.items():
        found = re.search(rf"\b(?:{word})\b", plain, flags=re.IGNORECASE)
        if found and word not in permitted:
            yield f"{found.group()!r}; better: {better}"


def faults_of(path: Path) -> Iterator[str]:
    """Every violation in a module, with its place."""
    name = path.relative_to(ROOT)
    docstring, found, _ = read(path)
    opening = re.match(r"([A-Z][a-z]*s)[\s,]", docstring) if docstring is not None else None
    if docstring is not None and (opening is None or opening[1] in NO_VERBS):
        yield f"{name}:1 begins with no verb in the third person: {docstring.splitlines()[0]}"
    for prose in found:
        where = f"{name}:{prose.line}"
        for sentence in sentences(prose.text):
            if ASIDE.match(sentence):
                yield f"{where} has a clause for a subject: {sentence}"
        for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", prose.text):
            for chain in chains_in(paragraph):
                yield f"{where} {chain}"
        for said in dialect_in(prose.text):
            yield f"{where} says {said}"
        if prose.is_docstring:
            for sentence in sentences(first_paragraph(prose.text)):
                if len(sentence.split()) > MAX_WORDS:
                    yield f"{where} has a sentence of {len(sentence.split())} words: {sentence}"


def faults_of_page(path: Path) -> Iterator[str]:
    """Every violation in a page, outside of its blocks of code, with its place."""
    name = path.relative_to(ROOT)
    text = re.sub(
        r"^```.*?^```", lambda block: "\n" * block.group().count("\n"), path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for number, line in enumerate(text.splitlines(), 1):
        for said in dialect_in(line, ABOUT_FIGURES):
            yield f"{name}:{number} says {said}"
    for paragraph in re.split(r"\n\s*\n", re.sub(r"^(?:[-*] |\d+\. |\| )", "\n\n", text, flags=re.MULTILINE)):
        for chain in chains_in(paragraph):
            yield f"{name} {chain}"
        for sentence in sentences(paragraph.replace("**", "")):
            if ASIDE.match(sentence):
                yield f"{name} has a clause for a subject: {sentence}"


@pytest.mark.slow
@pytest.mark.parametrize("folder", sorted({folder_of(path) for floor in FLOORS for path in (ROOT / floor).rglob("*.py")}))
def test_a_reader_takes_in_each_sentence_at_once(folder: str) -> None:
    faults = [fault for path in sorted((ROOT / folder).glob("*.py")) for fault in faults_of(path)]
    assert not faults, "\n".join(faults)


@pytest.mark.slow
@pytest.mark.parametrize("floor", PRODUCT)
def test_an_operator_reads_no_private_dialect(floor: str) -> None:
    faults = []
    for path in sorted((ROOT / floor).rglob("*.py")):
        for line, message in read(path).messages:
            faults += [f"{path.relative_to(ROOT)}:{line} says {said}" for said in dialect_in(message)]
    assert not faults, "\n".join(faults)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_reader_takes_in_each_page_at_once(page: Path) -> None:
    faults = list(faults_of_page(page))
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("If it fails, it keeps the keys that it has, and logs it.", 4),
        ("If the reading fails, the broker keeps its keys, and logs the failure.", 0),
        ("The bytes of the leaders, and those of all replicas: `None` if those of one of them are unknown, as is that of it.", 5),
        ("This broker has that topic, which these clients read.", 0),
        ("it | it | it, or they | them", 0),
    ],
)
def test_a_chain_of_pronouns_is_found(text: str, count: int) -> None:
    assert [found.partition(" pronouns")[0] for found in chains_in(text)] == ([f"has {count}"] if count else [])
