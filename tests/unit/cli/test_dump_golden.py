"""What the real DumpLogSegments printed for every file of every recorded directory, and what ours prints."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.cli.dump.decoders import offsets_decoder, transaction_log_decoder
from ottla.cli.dump.text import CannotDump, Dump, DumpOptions
from tests.support.golden_logs import LOGS

RECORDED = sorted((LOGS / "dump").glob("*.txt"))
EXCEPTION = re.compile(r"EXCEPTION (\w+): (.*)")
SAID_OTHERWISE = {"NoSuchElementException": "where no batch begins"}
"""Where the real one dies of an unforeseen exception, ours says what it did not find."""


class Run(NamedTuple):
    """One call of the tool: options, file, lines."""

    path: Path
    options: list[str]
    lines: list[str]


def runs_in(recorded: Path) -> list[Run]:
    found: list[Run] = []
    for line in recorded.read_text(encoding="utf-8").splitlines():
        if line.startswith("$ DumpLogSegments --files "):
            path, *options = line.removeprefix("$ DumpLogSegments --files ").split()
            found.append(Run(Path(path), options, []))
        else:
            found[-1].lines.append(line)
    return found


def options_of(run: Run) -> DumpOptions:
    options = DumpOptions(
        deep_iteration="--deep-iteration" in run.options,
        print_data_log="--print-data-log" in run.options,
        index_sanity_check="--index-sanity-check" in run.options,
    )
    if "--offsets-decoder" in run.options:
        return options._replace(decoder=offsets_decoder)
    return options._replace(decoder=transaction_log_decoder) if "--transaction-log-decoder" in run.options else options


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
def test_every_file_is_printed_as_the_original_prints_it(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(LOGS)
    for run in runs_in(recorded):
        printed: list[str] = []
        failure = ""
        try:
            Dump(options_of(run), printed.append).file(run.path)
        except CannotDump as error:
            failure = str(error)
        died = EXCEPTION.fullmatch(run.lines[-1])
        if died is None:
            assert not failure
            assert printed == run.lines
        else:
            assert printed == run.lines[:-1]
            assert SAID_OTHERWISE.get(died.group(1), died.group(2)) in failure


def test_the_recordings_are_there() -> None:
    assert sum(len(runs_in(recorded)) for recorded in RECORDED) == 688
