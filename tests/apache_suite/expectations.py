"""Reads which tests are expected to pass from `suite.toml` or `suite-4.toml`, and judges the outcomes of a run by it."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).with_name("suite.toml")
LIST_4 = Path(__file__).with_name("suite-4.toml")
KINDS = ("harness", "difference")
"""Why a test cannot pass: it looks into the server's JVM, or Ottla differs on purpose."""
ALL_METHODS = ".*"
WHOLE_CLASS = "*"
"""Stands for all tests of a class that cannot run."""


class Outcome(NamedTuple):
    """The outcome of one test: its method with parameters and number, as `testX(String)[1]`, and the first line of its failure."""

    name: str
    failure: str | None

    @property
    def method(self) -> str:
        """The name without parameters and number."""
        return self.name.partition("(")[0]


class Reason(NamedTuple):
    """Why a test cannot pass."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Expectation(NamedTuple):
    """What is expected of a class: how many tests pass, and which cannot, by method or by the whole name.

    Of a class that also has tests of other subjects, only the methods of this expression run.
    """

    passed: int
    reasons: Mapping[str, Reason]
    methods: str = ALL_METHODS

    @property
    def runs(self) -> bool:
        """Whether the class is part of a whole run."""
        return WHOLE_CLASS not in self.reasons

    def reason(self, outcome: Outcome) -> Reason | None:
        """Why this test cannot pass, if it is listed."""
        return self.reasons.get(outcome.name) or self.reasons.get(outcome.method) or self.reasons.get(WHOLE_CLASS)


def read_list(path: Path = LIST) -> dict[str, Expectation]:
    """The expectations by class. Raises ValueError for an entry that is none."""
    found = {}
    for name, entries in tomllib.loads(path.read_text(encoding="utf-8")).items():
        passed = entries.pop("passed", 0)
        methods = entries.pop("methods", ALL_METHODS)
        reasons = {}
        for test, reason in entries.items():
            if not isinstance(reason, dict) or len(reason) != 1 or not set(reason) <= set(KINDS):
                raise ValueError(f"{name}.{test} needs one reason: {' or '.join(KINDS)}")
            ((kind, text),) = reason.items()
            reasons[test] = Reason(kind, text)
        found[name] = Expectation(passed, reasons, methods)
    return found


def complaints(outcomes: Sequence[Outcome], expectation: Expectation, is_whole: bool = True) -> list[str]:
    """What is not as expected, a line each. Without `is_whole` only some methods ran, and the number of passed tests says nothing."""
    found = []
    for outcome in outcomes:
        reason = expectation.reason(outcome)
        if outcome.failure is not None and reason is None:
            found.append(f"{outcome.name}: {outcome.failure}")
        elif outcome.failure is None and reason is not None:
            found.append(f"{outcome.name} passes, and is listed ({reason})")
    names = {name for outcome in outcomes for name in (outcome.name, outcome.method)} | {WHOLE_CLASS}
    if is_whole:
        found += [f"{name} is listed, and did not run" for name in expectation.reasons if name not in names]
        passed = sum(outcome.failure is None for outcome in outcomes)
        if passed < expectation.passed and not found:
            found.append(f"{passed} tests passed instead of {expectation.passed}")
    return found


def table(known: Mapping[str, Expectation]) -> list[str]:
    """The rows of the table in docs/long-tests.md."""
    rows = ((_title(name, each), str(each.passed) if each.runs else "not run", _cannot(each)) for name, each in known.items())
    return [f"| {title} | {passed} | {cannot} |".replace("|  |", "| |") for title, passed, cannot in rows]


def _title(name: str, expectation: Expectation) -> str:
    short = f"`{name.rpartition('.')[2]}`"
    return short if expectation.methods == ALL_METHODS else f"{short} (`{expectation.methods}`)"


def _cannot(expectation: Expectation) -> str:
    tests: dict[Reason, list[str]] = {}
    for name, reason in expectation.reasons.items():
        tests.setdefault(reason, []).append("all" if name == WHOLE_CLASS else f"`{name}`")
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in tests.items())
