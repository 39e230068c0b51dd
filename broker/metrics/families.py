"""Defines a metric: its Prometheus name, its labels, the corresponding MBean of Apache Kafka, and how its values are
read.

The names are those that the Prometheus JMX exporter gives Kafka's MBeans by its example rules for Kafka
(`kafka-2_0_0.yml`), which common dashboards use: `kafka_` domain `_` type `_` name in lower case. Meters become
counters that end in `_total`, histograms and timers become quantiles with a `_count`. Metrics without an MBean begin
with `ottla_`.

A `read` is a generator that runs on the event loop. A few values are read at a time with other work in between. So it
iterates over copies of collections that may change meanwhile, and does little per value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.histogram import Distribution

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View


class Kind(Enum):
    """The types of the text format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


MILLISECONDS: Final = 0.001
"""Milliseconds per microsecond, the unit of the measured times."""

Value = float | Distribution
Reading = Iterable[tuple[str, Value]]
"""(labels in the form of `labels_text`, value)"""


Found = tuple["Family", list[str], list[Value]]
"""A family, the labels and the values. Not pairs: a hundred thousand tuples cost the garbage collector five
milliseconds."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its label values."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    mbean: str
    """A pattern like the recorded MBean names: domain, sorted properties, `*` for a variable part. Empty for Ottla's
    own metrics."""
    doc: str
    read: Callable[[View], Reading]
    scale: float = 1.0
    """Factor for the integers of a histogram: 0.001 converts microseconds to milliseconds."""
    more_mbeans: tuple[str, ...] = ()
    """Patterns of further MBeans whose attribute has the same name, and other labels."""


def labels_text(names: Sequence[str], values: Iterable[object]) -> str:
    """`{name="value",...}` in the text format; empty without labels."""
    if not names:
        return ""
    pairs = ",".join(f'{name}="{escaped(str(value))}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}"


def escaped(text: str) -> str:
    """The escaped value of a label."""
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def single(name: str, kind: Kind, mbean: str, doc: str, read: Callable[[View], Value | None], scale: float = 1.0) -> Family:
    """A family without labels, and without a value while `read` has None."""

    def values(view: View) -> Reading:
        value = read(view)
        return () if value is None else (("", value),)

    return Family(name, kind, (), mbean, doc, values, scale)


def gauge(name: str, mbean: str, doc: str, read: Callable[[View], float | None]) -> Family:
    """A gauge without labels."""
    return single(name, Kind.GAUGE, mbean, doc, read)


def counter(name: str, mbean: str, doc: str, read: Callable[[View], float | None]) -> Family:
    """A counter without labels."""
    return single(name, Kind.COUNTER, mbean, doc, read)


def timer(name: str, mbean: str, doc: str, read: Callable[[View], Distribution | None]) -> Family:
    """A summary of times without labels, in milliseconds, which are measured in microseconds."""
    return single(name, Kind.SUMMARY, mbean, doc, read, MILLISECONDS)


def labelled(
    name: str,
    kind: Kind,
    labels: tuple[str, ...],
    mbean: str,
    doc: str,
    read: Callable[[View], Iterable[tuple[Sequence[object], Value]]],
    scale: float = 1.0,
    more_mbeans: tuple[str, ...] = (),
) -> Family:
    """A family whose `read` has the values of the labels with each value."""

    def values(view: View) -> Reading:
        for label_values, value in read(view):
            yield labels_text(labels, label_values), value

    return Family(name, kind, labels, mbean, doc, values, scale, more_mbeans)


def load_times(metrics: str, topic: str, recent: Callable[[View], list[float]]) -> tuple[Family, Family]:
    """The times in which partitions of a coordinator's topic were loaded, which `recent` has in seconds."""

    def family(attribute: str, doc: str, of_times: Callable[[list[float]], float]) -> Family:
        def read(view: View) -> float:
            times = recent(view)
            return of_times(times) * 1000 if times else math.nan

        name = f"kafka_server_{metrics.replace('-', '_')}_partition_load_time_{attribute}"
        return gauge(name, f"kafka.server:type={metrics}", doc, read)

    mean = f"Mean time to load a partition of `{topic}`, over the last minute, in milliseconds; NaN if none was loaded."
    return family("avg", mean, lambda times: sum(times) / len(times)), family("max", "The longest of those times.", max)
