"""Makes the files of the dashboards and rules from the declarations, and refuses expressions with unknown metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from ottla.broker.metrics.endpoint import FAMILIES
from ottla.broker.metrics.families import Kind
from ottla.dashboards.panels import ALERTS, DASHBOARDS, RECORDING_RULES, Dashboard, Panel

GRAFANA: Final = "deploy/grafana"
RULES: Final = "deploy/prometheus/ottla-rules.yml"

_OF_THE_CLIENT_LIBRARY: Final = frozenset(
    {"process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes"}
)
_METRIC: Final = re.compile(r"\b(?:kafka|org_apache_kafka|ottla|process|python)_\w+")
_PANELS_IN_A_ROW: Final = 3
_GRID_WIDTH: Final = 24
_PANEL_HEIGHT: Final = 8


class UnknownMetric(Exception):
    """An expression has a metric that no broker exports."""


def files() -> dict[str, str]:
    """Path -> content. Raises UnknownMetric."""
    for expression in expressions():
        check(expression)
    found = {f"{GRAFANA}/{each.uid}.json": json.dumps(_dashboard(each), indent=2) + "\n" for each in DASHBOARDS}
    found[RULES] = _rules()
    return found


def expressions() -> Iterator[str]:
    """Every expression of the dashboards and rules."""
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            yield from panel.expressions
    yield from RECORDING_RULES.values()
    for alert in ALERTS:
        yield alert.expression


def exported() -> frozenset[str]:
    """The names of all series that may be in an expression."""
    names = {family.name for family in FAMILIES}
    for family in FAMILIES:
        if family.kind is Kind.SUMMARY:
            names |= {f"{family.name}_sum", f"{family.name}_count"}
    return frozenset(names) | _OF_THE_CLIENT_LIBRARY


def metrics_in(expression: str) -> set[str]:
    """The metrics of an expression; label values are none."""
    return set(_METRIC.findall(re.sub(r'"[^"]*"', '""', expression)))


def check(expression: str) -> None:
    """Raises UnknownMetric if the expression has a metric that no broker exports."""
    unknown = metrics_in(expression) - exported()
    if unknown:
        raise UnknownMetric(f"{', '.join(sorted(unknown))} in {expression}")


def _dashboard(dashboard: Dashboard) -> dict[str, object]:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["ottla", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_data_source(), *(_variable(name, *of) for name, of in dashboard.variables.items())]},
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }


def _data_source() -> dict[str, object]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, metric: str, label: str) -> dict[str, object]:
    check(metric)
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values({metric}, {label})",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> dict[str, object]:
    width = _GRID_WIDTH // _PANELS_IN_A_ROW
    row, column = divmod(number, _PANELS_IN_A_ROW)
    source = {"type": "prometheus", "uid": "${datasource}"}
    several = len(panel.expressions) > 1
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": source,
        "gridPos": {"x": column * width, "y": row * _PANEL_HEIGHT, "w": width, "h": _PANEL_HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": source,
                "expr": expression,
                "legendFormat": f"{panel.legend} {_short_name(expression)}".strip() if several else panel.legend,
            }
            for place, expression in enumerate(panel.expressions)
        ],
    }


def _short_name(expression: str) -> str:
    """The last word of the metric, which distinguishes the series of a panel."""
    (metric, *_) = sorted(metrics_in(expression))
    return metric.removesuffix("_total").rpartition("_")[2]


def _rules() -> str:
    """The rules in YAML. A JSON string is a YAML string."""
    lines = [
        "# Written by `python -m ottla.dashboards` from ottla/dashboards/panels.py; change that, not this file.",
        "groups:",
        "  - name: ottla-recording",
        "    rules:",
    ]
    for name, expression in RECORDING_RULES.items():
        lines += [f"      - record: {name}", f"        expr: {json.dumps(expression)}"]
    lines += ["  - name: ottla-alerts", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.lasts}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          description: {json.dumps(alert.description)}",
        ]
    return "\n".join(lines) + "\n"
