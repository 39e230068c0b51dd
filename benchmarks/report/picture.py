"""Draws the charts of a result as SVG text: ratios to the reference, and courses of both sides."""

import io
from collections.abc import Sequence

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from benchmarks.parts.part import Curve
from benchmarks.report.lines import Line
from benchmarks.report.table import Sides

_MET, _MISSED, _NO_TARGET = "#2a7d4f", "#b5482f", "#6b7785"
_COLOURS = ("#c2571a", "#1f6f8b", "#5b7f52", "#7a5195")
_STYLES = ("-", "--", ":", "-.")
_WIDTH, _ROW, _FRAME = 9.0, 0.27, 1.1
_MOST_TIMES = 20.0


def ratio_picture(sides: Sides, lines: Sequence[Line]) -> str:
    """A bar per line and side: "times better than the first side", which is the line at 1; a black mark shows the target.

    Empty text when there is nothing to compare. The axis ends at 20; larger ratios are written as text.
    """
    reference, *others = sides
    rows = []
    for line in lines:
        base = line.value(sides[reference])
        for label in others:
            ours = line.value(sides[label])
            ratio = line.ratio(ours, base)
            if ratio is not None:
                goal = line.ratio_at_least if line.at_most is None else line.ratio(line.at_most, base)
                name = line.title if len(others) == 1 else f"{line.title} ({label})"
                rows.append((name, ratio, goal, line.reached(ours, base)))
    if not rows:
        return ""
    figure, axes = _canvas(_FRAME + _ROW * len(rows), f"{', '.join(others)}: how many times better than {reference}")
    end = min(max([1.5, *(max(ratio, goal or 0) for _, ratio, goal, _ in rows)]), _MOST_TIMES)
    for at, (_, ratio, goal, reached) in enumerate(rows):
        axes.barh(at, min(ratio, end), height=0.7, color=_NO_TARGET if reached is None else _MET if reached else _MISSED)
        axes.text(min(ratio, end) + end * 0.01, at, f"{ratio:.2f} ×", va="center", fontsize=8)
        if goal is not None and goal <= end:
            axes.plot([goal, goal], [at - 0.45, at + 0.45], color="black", linewidth=2)
    axes.axvline(1, color="#999", linewidth=1)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, end * 1.1)
    return _svg(figure)


def curve_picture(sides: Sides, curve: Curve) -> str:
    """The courses of all sides: a colour per side, a stroke per course. Empty text when there are none."""
    figure, axes = _canvas(3.4, curve.title)
    for label, colour in zip(sides, _COLOURS, strict=False):
        for (name, course), style in zip(curve.courses(sides[label]).items(), _STYLES, strict=False):
            across, up = [at for at, _ in course], [value for _, value in course]
            marker = "." if len(course) < 20 else None
            axes.plot(across, up, color=colour, linestyle=style, marker=marker, linewidth=1.4, label=f"{label}: {name}")
    if not axes.lines:
        plt.close(figure)
        return ""
    axes.set_xlabel(curve.across)
    axes.set_ylabel(curve.up)
    if curve.is_log:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter("{x:,g}")
    else:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color="#ddd", linewidth=0.6)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return _svg(figure)


def _canvas(height: float, title: str) -> tuple[Figure, Axes]:
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "benchmarks"
    figure, axes = plt.subplots(figsize=(_WIDTH, height), layout="constrained")
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    plt.close(figure)
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
