"""Defines the metrics about client telemetry, and shows the values that clients have pushed (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.metrics.families import Family, Found, Kind, Value, counter, gauge, labels_text
from ottla.broker.telemetry.series import COUNTER_SUFFIX
from ottla.pauses import pause

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View
    from ottla.broker.telemetry.instances import Instances

DOC = "Pushed by clients."


def _instances(view: View) -> Instances:
    return view.services.administration.telemetry.instances


def _forwarded(view: View) -> tuple[int, int]:
    """The pushes that the collector has, and those that it lacks."""
    forwarder = view.services.administration.telemetry.forwarder
    return (forwarder.sent, forwarder.dropped) if forwarder is not None else (0, 0)


TELEMETRY_FAMILIES = (
    gauge(
        "ottla_telemetry_instances",
        "",
        "Client instances that ask for subscriptions to their metrics, `ottla.telemetry.max.instances` at most.",
        lambda view: len(_instances(view)),
    ),
    counter(
        "kafka_server_client_metrics_unknown_subscription_request_count",
        "kafka.server:type=client-metrics",
        "Pushes with the id of a subscription that the client does not have.",
        lambda view: view.services.administration.telemetry.unknown_subscriptions,
    ),
    gauge(
        "ottla_telemetry_series",
        "",
        "Values of metrics of clients, `ottla.telemetry.max.series` at most. Each is a metric `ottla_client_...`.",
        lambda view: _instances(view).series,
    ),
    counter(
        "ottla_telemetry_not_shown_total",
        "",
        "Values that clients have pushed beyond the limits of a client: 1,000 values, labels of 1,000 characters.",
        lambda view: _instances(view).not_shown,
    ),
    counter(
        "ottla_telemetry_forwarded_total",
        "",
        "Pushes that the collector at `ottla.telemetry.otlp.url` has taken.",
        lambda view: _forwarded(view)[0],
    ),
    counter(
        "ottla_telemetry_not_forwarded_total",
        "",
        "Pushes that this collector has refused, or that were dropped because too many waited for it.",
        lambda view: _forwarded(view)[1],
    ),
)


async def pushed(instances: Instances) -> list[Found]:
    """The latest values of all clients, by the names of the metrics."""
    found: dict[str, Found] = {}
    for instance in list(instances):
        for (name, label_names, label_values), value in list(instance.values.items()):
            of_name = found.get(name)
            if of_name is None:
                kind = Kind.COUNTER if name.endswith(COUNTER_SUFFIX) else Kind.GAUGE
                of_name = found[name] = Family(name, kind, (), "", DOC, lambda _: ()), [], list[Value]()
            of_name[1].append(labels_text(label_names, label_values))
            of_name[2].append(value)
            await pause()
    return list(found.values())
