"""Keeps what an interrupted run has measured beside its page, so that `--resume` measures the other parts only."""

import argparse
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report.table import Sides

_FILE = "unfinished.pickle"


class NotResumableError(Exception):
    """A folder has no unfinished run, or one of another commit. The message says so."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run before its end: its arguments, its machine, the results of completed parts by key, the keys to come, and its seconds so far."""

    asked: argparse.Namespace
    facts: Mapping[str, str]
    done: Mapping[str, Sides]
    missing: Sequence[str]
    took_s: float


def keep(run: Unfinished, directory: Path) -> None:
    """Write the run beside its page. Removes the file when no part is missing."""
    if run.missing:
        (directory / _FILE).write_bytes(pickle.dumps(run))
    else:
        (directory / _FILE).unlink(missing_ok=True)


def kept(directory: Path, facts: Mapping[str, str]) -> Unfinished:
    """The unfinished run of a folder, to go on with on a machine with these facts. Raises NotResumableError."""
    try:
        run = pickle.loads((directory / _FILE).read_bytes())
    except FileNotFoundError:
        raise NotResumableError(f"{directory} has no unfinished run") from None
    if not isinstance(run, Unfinished):
        raise NotResumableError(f"{directory / _FILE} is no unfinished run")
    if run.facts["commit"] != facts["commit"]:
        raise NotResumableError(f"{directory} was measured at {run.facts['commit']}, and this is {facts['commit']}")
    return run
