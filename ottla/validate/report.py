"""Writes the report: a folder with `report.json`, `report.html` and the measurements as Parquet, complete or not at all.

The report grows in a hidden folder beside its place, and gets its name when complete. The place must be free, or contain an earlier report.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from html import escape
from pathlib import Path

from ottla.validate.plan import DidNotFinish, Unusable
from ottla.validate.scratch import MadeFolder, OwnFolder

Facts = Mapping[str, object]

_PREFIX = ".ottla-report-"
_PARTS = frozenset({"report.json", "report.html", "spark.log", "findings", "throughput", "latency", "partitions", "batches"})

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; padding: .8rem 1rem; border-radius: 6px; color: #fff }
h1.holds { background: #3d7a46 } h1.fails { background: #b3362b }
h2 { font-size: 1.1rem; margin: 2rem 0 .4rem } svg { width: 100%; height: auto }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .2rem .7rem .2rem 0; border-bottom: 1px solid #e3e3e3; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; padding-right: 1.5rem }
.bad td { color: #b3362b; font-weight: 600 } .good td.n { color: #3d7a46 }
.checks td { white-space: nowrap } .checks td:last-child { color: #666; font-weight: 400; white-space: normal }
small { color: #666 }
"""


class ReportFolder:
    """A context manager. Removes a report that was not published by the end, and leftovers of a killed run."""

    def __init__(self, place: Path) -> None:
        """Raises Unusable when no report can be written there."""
        self.place = place.absolute()
        try:
            if not self._may_be_replaced():
                raise Unusable(f"{place}: is there already and is no report; name another folder with --report")
            if self.place.is_mount():
                raise Unusable(f"{place}: is a mount point, and a report comes as a new folder; name one inside it with --report")
            self._above = MadeFolder(self.place.parent)
            try:
                self._own = OwnFolder(self.place.parent, _PREFIX)
            except BaseException:
                self._above.remove()
                raise
            if self.place.exists() and not os.access(self.place, os.W_OK):
                self._discard()
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise Unusable(f"{place}: no report can be written there: {error.strerror}; name another folder with --report") from None
        self.growing = self._own.path
        self.growing.chmod(0o755)

    def __enter__(self) -> ReportFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._discard()

    def publish(self) -> None:
        """Give the complete report its name, in place of an earlier one. Raises DidNotFinish when another file has come there meanwhile."""
        if not self._may_be_replaced():
            raise DidNotFinish(f"{self.place}: is no report, and was not there when the run began")
        if self.place.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{self.place.name}.old.", dir=self.place.parent))
            self.place.rename(old / "report")
            self._own.rename(self.place)
            shutil.rmtree(old)
        else:
            self._own.rename(self.place)

    def _may_be_replaced(self) -> bool:
        """Whether the place is free, or contains only the report of an earlier run."""
        if not self.place.is_dir():
            return not os.path.lexists(self.place)
        names = {path.name for path in self.place.iterdir()}
        return not names or {"report.json", "report.html"} <= names <= _PARTS

    def _discard(self) -> None:
        self._own.remove()
        self._above.remove()


def write_json(folder: Path, report: Facts) -> None:
    """`report.json`."""
    (folder / "report.json").write_text(json.dumps(report, indent=1, default=str) + "\n", encoding="utf-8")


def write_html(folder: Path, report: Facts, plots: Mapping[str, tuple[str, str]], meanings: Mapping[str, str]) -> None:
    """Write `report.html`: the verdict, then its evidence, then the charts. The page needs no other file.

    `plots` has the explanation and the SVG of each chart, by title; `meanings` explains each of the checks.
    """
    holds = bool(report["holds"])
    title = escape(str(report["verdict"]))
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title><style>{_STYLE}</style>",
        f"<h1 class='{'holds' if holds else 'fails'}'>{title}</h1>",
        _numbers(report["summary"]),
        "<h2>What was checked</h2>",
        _checks(report["checks"], meanings),
    ]
    if report["examples"]:
        parts += ["<h2>What went wrong</h2>", _table(report["examples"]), "<p><small>All of it: the Parquet folder findings.</small></p>"]
    parts += [f"<h2>{escape(name)}</h2><p><small>{escape(says)}</small></p>{svg}" for name, (says, svg) in plots.items()]
    parts += ["<h2>How it was run</h2>", _numbers(report["environment"])]
    (folder / "report.html").write_text("\n".join(parts), encoding="utf-8")


def _numbers(facts: object) -> str:
    assert isinstance(facts, Mapping)
    rows = "".join(f"<tr><th>{escape(str(name))}</th><td>{escape(cell(value))}</td></tr>" for name, value in facts.items())
    return f"<table>{rows}</table>"


def _checks(checks: object, meanings: Mapping[str, str]) -> str:
    assert isinstance(checks, Mapping)
    rows = "".join(
        f"<tr class='{'bad' if count else 'good'}'><td>{escape(name)}</td><td class='n'>{count:,}</td>"
        f"<td>{escape(meanings[name])}</td></tr>"
        for name, count in checks.items()
    )
    return f"<table class='checks'><tr><th>looked for</th><th class='n'>found</th><th>what it means</th></tr>{rows}</table>"


def _table(rows: object) -> str:
    assert isinstance(rows, list)
    names = list(rows[0])
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape('-' if row[name] is None else str(row[name]))}</td>" for name in names) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def cell(value: object) -> str:
    """A value formatted for readers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
