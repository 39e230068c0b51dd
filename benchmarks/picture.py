"""The ratios of a run as an SVG picture: one bar per line and side, a mark where its target lies. Needs no plotting library."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.lines import Line
from benchmarks.table import Sides

_LABELS, _BARS, _ROW, _HEAD, _RIGHT = 330, 480, 26, 58, 90
_MET, _MISSED, _NO_TARGET = "#2a7d4f", "#b5482f", "#6b7785"


def ratio_picture(sides: Sides, lines: Sequence[Line]) -> str:
    """SVG text. Bars are "times better than the reference", the first side; the line at 1 is that side itself."""
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
    scale = _BARS / max([1.0, *(max(ratio, goal or 0) for _, ratio, goal, _ in rows)])
    width, height = _LABELS + _BARS + _RIGHT, _HEAD + _ROW * len(rows) + 20
    subject = ", ".join(others) or "nothing"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="24" font-size="16">{escape(subject)}: how many times better than {escape(reference)}</text>',
        '<text x="12" y="44" fill="#555">black mark: target; grey line: equal</text>',
    ]
    for i, (name, ratio, goal, reached) in enumerate(rows):
        y = _HEAD + _ROW * i
        colour = _NO_TARGET if reached is None else _MET if reached else _MISSED
        parts.append(f'<text x="{_LABELS - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{_LABELS}" y="{y + 3}" width="{ratio * scale:.1f}" height="{_ROW - 8}" fill="{colour}"/>')
        parts.append(f'<text x="{_LABELS + ratio * scale + 6:.1f}" y="{y + 16}">{ratio:.2f} ×</text>')
        if goal is not None:
            parts.append(f'<rect x="{_LABELS + goal * scale - 1:.1f}" y="{y}" width="2" height="{_ROW - 2}" fill="black"/>')
    one = _LABELS + scale
    parts.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{_HEAD}" y2="{height - 16}" stroke="#999"/>')
    return "\n".join([*parts, "</svg>", ""])
