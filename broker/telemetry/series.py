"""Converts the metrics of a client to samples of the metrics endpoint, with names that Prometheus allows.

Pure, and called in worker threads. The names of clients cannot be mistaken for those of the broker, because all begin with a prefix. Two
names that become the same are one metric.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.broker.telemetry.otlp import MAX_TEXT_BYTES, Point, points_of

PREFIX: Final = "ottla_client_"
KAFKA_PREFIX: Final = "org.apache.kafka."
MAX_LABELS_TEXT: Final = 1_000
"""Most characters of all labels of a value together."""
COUNTER_SUFFIX: Final = "_total"

_NO_NAME: Final = re.compile("[^a-zA-Z0-9_]")


class Series(NamedTuple):
    """The name of a metric, and its labels. Equal labels have the same order."""

    name: str
    label_names: tuple[str, ...]
    label_values: tuple[str, ...]


class Sample(NamedTuple):
    """A value that a client has pushed."""

    series: Series
    value: float
    is_delta: bool


def samples_of(data: bytes, client_id: str, client_instance_id: str, most: int, pause: Callable[[], None]) -> tuple[list[Sample], int]:
    """The samples of a MetricsData, `most` at most, and the number of those beyond. Raises MalformedMetrics."""
    own = {"client_id": client_id[:MAX_TEXT_BYTES], "client_instance_id": client_instance_id}
    samples: list[Sample] = []
    left_out = 0
    for point in points_of(data, pause):
        labels = _labels(point, own) if len(samples) < most else {}
        if not labels or sum(map(len, (*labels, *labels.values()))) > MAX_LABELS_TEXT:
            left_out += 1
        else:
            samples.append(Sample(Series(_name(point), tuple(labels), tuple(labels.values())), point.value, point.is_delta))
    return samples, left_out


def _name(point: Point) -> str:
    name = PREFIX + _NO_NAME.sub("_", point.name.removeprefix(KAFKA_PREFIX))
    return name + COUNTER_SUFFIX if point.is_counter and not name.endswith(COUNTER_SUFFIX) else name


def _labels(point: Point, own: dict[str, str]) -> dict[str, str]:
    # Names that begin with two underscores are reserved in Prometheus.
    labels = {_NO_NAME.sub("_", name).lstrip("_0123456789"): value for name, value in point.labels.items()}
    return own | {name: labels[name] for name in sorted(labels) if name and name not in own}
