"""Draws the demonstration: brokers, traffic, views per minute, and what happened."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from benchmarks.demo.brokers import BrokerRow
from benchmarks.demo.traffic import GROUP, MEMBERS, SHARE_GROUP, SHARE_MEMBERS, Traffic
from benchmarks.examples.web_events import COLOURS, PAGES

WIDTH = 100
_MINUTES = 4
_BAR = 44
_EVENTS = 6


class Moment(NamedTuple):
    """Everything that the screen shows at one time. Rates are events a second."""

    brokers: Sequence[BrokerRow]
    written_rate: float
    read_rate: float
    spark_state: str
    spark_views: Mapping[tuple[str, str], int]
    next_kill_seconds: float | None


class Screen:
    """Keeps the last events, and draws moments."""

    def __init__(self, bootstrap: str, console: str | None, traffic: Traffic) -> None:
        self._bootstrap = bootstrap
        self._console = console
        self._traffic = traffic
        self._events: deque[Text] = deque(maxlen=_EVENTS)

    def tell(self, text: str, style: str = "") -> None:
        """Add a line about what happened."""
        self._events.append(Text.assemble((time.strftime("%H:%M:%S "), "dim"), (text, style)))

    def draw(self, moment: Moment) -> RenderableType:
        """The whole screen."""
        head = Text.assemble(("Ottla ", "bold"), f"at {self._bootstrap}", ("   Ctrl-C ends it, and leaves nothing", "dim"))
        parts: list[RenderableType] = [head]
        if self._console is not None:
            parts.append(Text.assemble("console  ", (self._console, "underline")))
        parts += [_brokers(moment.brokers), self._facts(moment), self._views(moment), *self._events]
        return Panel(Group(*parts), width=WIDTH, box=box.ROUNDED)

    def line(self, moment: Moment) -> str:
        """The moment in one line, with what has happened since the last one."""
        happened = [event.plain for event in self._events]
        self._events.clear()
        states = " ".join(f"{each.id}:{each.state}" for each in moment.brokers)
        traffic = self._traffic
        read = f"read {traffic.consumed:,}, shared {traffic.shared:,}"
        counts = f"written {traffic.acknowledged:,}, {read}, checked {traffic.checked:,}, repeated {traffic.repeated}"
        return "\n".join([*happened, f"{states}  {counts}"])

    def _facts(self, moment: Moment) -> RenderableType:
        traffic = self._traffic
        table = Table.grid(padding=(0, 3))
        table.add_row(
            f"written {traffic.acknowledged:,}", f"{moment.written_rate:,.0f} a second", f"longest pause {traffic.longest_pause:.1f} s"
        )
        table.add_row(f"read {traffic.consumed:,}", f"{moment.read_rate:,.0f} a second", f"group {GROUP}, {MEMBERS} members")
        table.add_row(
            f"shared {traffic.shared:,}", f"again {traffic.shared_again:,}", f"share group {SHARE_GROUP}, {SHARE_MEMBERS} members"
        )
        right = traffic.repeated == 0
        table.add_row(
            f"checked {traffic.checked:,}",
            Text(f"repeated {traffic.repeated}", "green" if right else "bold red"),
            f"not checked yet {traffic.missing:,}",
        )
        if moment.next_kill_seconds is not None:
            table.add_row(Text(f"a broker is killed in {moment.next_kill_seconds:.0f} s", "yellow"))
        return table

    def _views(self, moment: Moment) -> RenderableType:
        views = self._traffic.views.copy()
        minutes = sorted({minute for minute, _ in views})[-_MINUTES:]
        most = max((sum(views[minute, page] for page in PAGES) for minute in minutes), default=1)
        table = Table.grid(padding=(0, 2))
        legend = Text("   ").join(Text(page, colour) for page, colour in zip(PAGES, COLOURS, strict=True))
        table.add_row(Text("minute", "dim"), legend, Text("group", "dim"), Text("Spark", "dim"))
        for minute in minutes:
            bar = Text()
            for page, colour in zip(PAGES, COLOURS, strict=True):
                bar.append("█" * round(_BAR * views[minute, page] / most), colour)
            by_spark = sum(count for (at, _), count in moment.spark_views.items() if at == minute)
            table.add_row(minute, bar, f"{sum(views[minute, page] for page in PAGES):,}", f"{by_spark:,}" if by_spark else "-")
        return Group(table, Text(f"Spark {moment.spark_state}", "dim"))


def _brokers(rows: Sequence[BrokerRow]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("broker", "address", "state", "process", "restarts", "leads", "behind"):
        table.add_column(name, justify="left" if name in ("broker", "address", "state") else "right")
    for row in rows:
        state = Text(row.state, "green" if row.state == "ready" else "bold red")
        numbers = (row.pid, row.restarts, row.leads, row.behind)
        table.add_row(str(row.id), row.address, state, *("-" if each is None else str(each) for each in numbers))
    return table
