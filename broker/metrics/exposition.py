"""Renders the values of a `View` in Prometheus' text format. Runs in a thread of the HTTP server, and accesses nothing
of the broker.

The broker's own families are rendered here: `prometheus_client.generate_latest` takes 10 µs per sample, a second for
10,000 partitions, during which the thread competes with the event loop for the interpreter's lock. This renderer
releases the lock every LINES_PER_TURN lines. `prometheus_client` renders what it collects itself (process, garbage
collector, platform).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

from ottla.broker.metrics.families import Family, Found, Kind
from ottla.broker.metrics.histogram import QUANTILES, Distribution

LINES_PER_TURN: Final = 500
"""Lines rendered between two pauses, about 0.2 ms."""
PAUSE_SECONDS: Final = 0.0005

_FRACTIONS: Final = tuple(float(label) for _, label in QUANTILES)


def render(found: Iterable[Found]) -> list[bytes]:
    """The families with all their values, in text format 0.0.4. Returned in parts, because joining megabytes holds the
    lock for long, too."""
    lines: list[str] = []
    parts: list[bytes] = []
    for line in _lines(found):
        lines.append(line)
        if len(lines) == LINES_PER_TURN:
            parts.append(_encoded(lines))
            lines.clear()
            time.sleep(PAUSE_SECONDS)
    parts.append(_encoded(lines))
    return parts


def _encoded(lines: list[str]) -> bytes:
    """The lines in UTF-8. Names may come from the command line, where bytes that are no text become lone surrogates."""
    return "".join(lines).encode(errors="replace")


def _lines(found: Iterable[Found]) -> Iterator[str]:
    for family, label_texts, values in found:
        name = family.name
        yield f"# HELP {name} {_help(family)}\n# TYPE {name} {family.kind.value}\n"
        for labels, value in zip(label_texts, values, strict=True):
            if isinstance(value, Distribution):
                yield from _summary(family, labels, value)
            else:
                yield f"{name}{labels} {value}\n"


def _help(family: Family) -> str:
    return family.doc.replace("\\", "\\\\").replace("\n", "\\n")


def _summary(family: Family, labels: str, value: Distribution) -> Iterator[str]:
    name = family.name
    assert family.kind is Kind.SUMMARY
    head = f"{labels[:-1]}," if labels else "{"
    for (_, label), quantile in zip(QUANTILES, value.quantiles(_FRACTIONS), strict=True):
        yield f'{name}{head}quantile="{label}"}} {quantile * family.scale:.9g}\n'
    yield f"{name}_sum{labels} {value.total * family.scale:.9g}\n"
    yield f"{name}_count{labels} {value.count}\n"
