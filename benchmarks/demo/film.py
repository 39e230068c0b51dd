"""Makes a film of a recording of the demonstration: an SVG with a moment of every ten seconds, which pages without scripts show, too."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

_EVERY_SECONDS: Final = 10.0
"""Time of the run between two moments; each is shown for a second."""
_REMOTE_FONT: Final = re.compile(r"@font-face \{.*?\}|<!--.*?-->", re.DOTALL)
_MOVES: Final = re.compile(r"\r|\x1b\[(?:\?25[hl]|\d*[AK])")
_SIZE: Final = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def picture(console: Console) -> str:
    """The SVG of what was printed. Rich names a font on another host, which readers of a page should not ask."""
    return _REMOTE_FONT.sub("", console.export_svg(title="make demo"))


def film(recording: Iterable[str]) -> str:
    """The SVG for the lines of a recording (asciicast version 2). Raises ValueError if it has no frame."""
    head, *events = map(json.loads, recording)
    pictures = [_drawn(text, head["width"]) for text in _moments((at, text) for at, _, text in events)]
    if not pictures:
        raise ValueError("the recording has no frame")
    sizes = [_SIZE.findall(each)[0] for each in pictures]
    width, height = (max(float(size[axis]) for size in sizes) for axis in (0, 1))
    shown = 100 / len(pictures)
    style = (
        f"svg svg {{ visibility: hidden; animation: moment {len(pictures)}s steps(1) infinite; }}"
        f" @keyframes moment {{ 0% {{ visibility: visible; }} {shown:.4f}% {{ visibility: hidden; }} }}"
    )
    parts = [f'<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg"><style>{style}</style>']
    for number, (each, (own_width, own_height)) in enumerate(zip(pictures, sizes, strict=True)):
        place = f'<svg width="{own_width}" height="{own_height}" style="animation-delay: {number}s" '
        parts.append(each.replace("<svg ", place, 1))
    return "\n".join([*parts, "</svg>\n"])


def _moments(frames: Iterable[tuple[float, str]]) -> Iterator[str]:
    next_at = 0.0
    for at, text in frames:
        drawn = _MOVES.sub("", text).strip("\n")
        if drawn and at >= next_at:
            next_at = at + _EVERY_SECONDS
            yield drawn


def _drawn(text: str, width: int) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    return picture(console)
