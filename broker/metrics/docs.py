"""Writes the page docs/metrics.md from the families: `python -m ottla.broker.metrics.docs`. A test compares the two."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ottla.broker.metrics.endpoint import SECTIONS
from ottla.broker.metrics.families import Family, Kind
from ottla.broker.metrics.uncovered import UNCOVERED

PAGE: Final = Path("docs/metrics.md")

_HEAD: Final = """\
# Metrics

This page is written by `python -m ottla.broker.metrics.docs` from the declarations in `broker/metrics/`; change those, not the page.

With `ottla.metrics.listener=127.0.0.1:9404` a broker serves by HTTP, without authentication:

| path | answer |
|---|---|
| `/metrics` | the metrics below in Prometheus' text format, and `process_*` and `python_*`; 503 during four other scrapes |
| `/health` | the same status as `/health/ready`; the text is `degraded` and the reason while the remote store does not answer |
| `/health/live` | 200 as long as the event loop runs; no answer otherwise |
| `/health/ready` | 200 while requests are served; 503 while the broker starts or stops |

Without that key there is no endpoint, and requests are timed only for `ottla.slow.request.ms`. Apache Kafka has no such endpoint of its
own: there the JMX exporter runs inside the broker. The names are those that the exporter gives Apache Kafka's MBeans by its example rules
(`kafka-2_0_0.yml`), so dashboards for these names work. Names that begin with `ottla_` have no MBean.

- **Sampled times.** Every request is counted. At low rates every request is timed. At high rates one in up to 1024 is timed, about two
  hundred a second of each kind. A sample counts for all requests since the previous sample, so `_count` lags slightly behind the number of
  requests. Quantiles cover the last one to two minutes, within 6 %.
- **Cost of a request.** A Produce or Fetch of one partition takes up to 3 % more processor time, any other request about a microsecond more
  (`python -m benchmarks.paths.metrics_cost`).
- **Cost of a scrape.** There are ten values for each partition. The event loop reads two hundred values at a time, and serves requests
  in between. So the numbers of a scrape are not from one moment.
- **Metrics of clients.** While there is a subscription (`kafka-client-metrics.sh`, KIP-714), clients push their metrics to brokers. The
  latest values are metrics `ottla_client_...` with the labels `client_id` and `client_instance_id`, and those of the client. The client's
  `org.apache.kafka.producer.connection.count` is `ottla_client_producer_connection_count`; sums that never fall end in `_total`. Changes
  that a client pushes are added up. A histogram has a `_count` and a `_sum`. Values that are no finite numbers are not shown. The values
  of a client disappear three intervals after its last push, after at least a minute.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, families in SECTIONS.items():
        parts.append(f"## {title}\n\n" + _table(("Name", "Labels", "MBean", "Meaning"), (_row(family) for family in families)))
    parts.append(
        "## MBeans without a metric\n\nThe MBeans of Apache Kafka 3.9.1 without a metric here, and the reasons.\n\n"
        + _table(("MBean", "Why"), ((f"`{pattern}`", reason) for pattern, reason in UNCOVERED))
    )
    return "\n".join(parts)


def _row(family: Family) -> tuple[str, ...]:
    labels = (*family.labels, "quantile") if family.kind is Kind.SUMMARY else family.labels
    name = f"`{family.name}`" + (", `_sum`, `_count`" if family.kind is Kind.SUMMARY else "")
    mbeans = ", ".join(f"`{mbean}`" for mbean in (family.mbean, *family.more_mbeans) if mbean)
    return name, ", ".join(f"`{label}`" for label in labels), mbeans, family.doc


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
