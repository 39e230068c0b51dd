"""Draws the charts of the report as SVG text for the page."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from itertools import chain, repeat

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ottla.validate.measure import PERCENTILES

Series = Sequence[Mapping[str, float]]
_NAMESPACE = re.compile(r' xmlns(:\w+)?="[^"]*"')  # HTML knows them: without them, no address of another machine stands in the page

_WRITTEN, _READ, _BAR, _FAULT = "#c2571a", "#1f6f8b", "#5b7f52", "#222222"
_SHADES = ("#9bbfd0", "#4c92ad", "#1f6f8b", "#0d3b4f")


def throughput(rows: Series, slice_s: int, faults: Sequence[float]) -> str:
    """Records per second, written and read, and the seconds of faults."""
    figure, axes = _canvas("records per second")
    edges = [row["second"] for row in rows]
    edges.append(edges[-1] + slice_s)
    for name, colour in (("written", _WRITTEN), ("read", _READ)):
        axes.stairs([row[f"{name}_per_s"] for row in rows], edges, color=colour, label=name, linewidth=1.6)
    for at, label in zip((at for at in faults if 0 <= at < edges[-1]), chain(["fault"], repeat(None)), strict=False):
        axes.axvline(at, color=_FAULT, linewidth=1, linestyle=":", label=label)
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, edges[-1])
    return _svg(figure, axes)


def latency(rows: Series, slice_s: int, end_s: float) -> str:
    """Latency percentiles over the time at which rows were written; rows may have been made long before, while Spark starts."""
    figure, axes = _canvas("latency, ms")
    seconds = [row["second"] + slice_s / 2 for row in rows]
    for name, colour in zip(PERCENTILES, _SHADES, strict=True):
        axes.plot(
            seconds, [max(row[name], 1) for row in rows], color=colour, label=name, linewidth=1.4, marker="." if len(rows) < 60 else None
        )
    axes.set_xlim(0, end_s)  # that of the throughput, to be looked at side by side
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter("{x:,.0f}")  # a new scale brings powers of ten
    axes.yaxis.set_minor_formatter("{x:,.0f}" if high < 10 * low else "")
    return _svg(figure, axes)


def skew(rows: Series, partitions: int) -> str:
    """Records per partition beside the mean of all partitions, including those without records."""
    figure, axes = _canvas("records", below="partition")
    numbers, records = [row["partition"] for row in rows], [row["records"] for row in rows]
    axes.bar(numbers, records, color=_BAR)
    axes.axhline(sum(records) / partitions, color="#444", linewidth=1, linestyle="--", label="mean")
    axes.set_xlim(-0.5, partitions - 0.5)
    if partitions <= 32:
        axes.set_xticks(range(partitions))
    return _svg(figure, axes)


def _canvas(beside: str, below: str = "seconds since the beginning") -> tuple[Figure, Axes]:
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "ottla"
    figure, axes = plt.subplots(figsize=(8.4, 2.8), layout="constrained")
    axes.set_xlabel(below)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(beside)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#ddd", linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Figure, axes: Axes) -> str:
    axes.legend(frameon=False, ncols=5, loc="lower left", bbox_to_anchor=(0, 1), fontsize=9)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    plt.close(figure)
    svg = text.getvalue()
    return _NAMESPACE.sub("", svg[svg.index("<svg") :])
