"""What a metric is: its Prometheus name, its labels, the MBean of Apache Kafka it stands for, and how its values are read.

The names are those that the Prometheus JMX exporter makes of Kafka's MBeans by its example rules for Kafka (`kafka-2_0_0.yml`), on which
common dashboards are built: `kafka_` domain `_` type `_` name in lower case; meters as counters that end in `_total`, histograms and timers
as quantiles with a `_count`. Metrics without an MBean begin with `ottla_`.

A `read` is a generator that runs on the event loop. It is taken a few values at a time with other work in between, so it walks over copies
of what may change meanwhile, and looks at little per value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from broker.metrics.histogram import Distribution

if TYPE_CHECKING:
    from broker.metrics.view import View


class Kind(Enum):
    """The types of the text format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


Value = float | Distribution
Reading = Iterable[tuple[str, Value]]
"""(labels as `labels_text` gives them, value)"""


Found = tuple["Family", list[str], list[Value]]
"""A family, the labels and the values. Not pairs: a hundred thousand tuples are five milliseconds for the garbage collector."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its label values."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    mbean: str
    """A pattern as those of the recorded names: domain, sorted properties, `*` for what varies. Empty for Ottla's own."""
    doc: str
    read: Callable[[View], Reading]
    scale: float = 1.0
    """By which the whole numbers of a histogram are multiplied: 0.001 makes milliseconds of microseconds."""
    more_mbeans: tuple[str, ...] = ()
    """Patterns of others whose attribute has the same name, and other labels."""


def labels_text(names: Sequence[str], values: Iterable[object]) -> str:
    """`{name="value",...}` as the text format has it; empty without labels."""
    if not names:
        return ""
    pairs = ",".join(f'{name}="{escaped(str(value))}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}"


def escaped(text: str) -> str:
    """The value of a label."""
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def gauge(name: str, mbean: str, doc: str, read: Callable[[View], float]) -> Family:
    """A gauge without labels."""
    return Family(name, Kind.GAUGE, (), mbean, doc, lambda view: [("", read(view))])


def counter(name: str, mbean: str, doc: str, read: Callable[[View], float]) -> Family:
    """A counter without labels."""
    return Family(name, Kind.COUNTER, (), mbean, doc, lambda view: [("", read(view))])
