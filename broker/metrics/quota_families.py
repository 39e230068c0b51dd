"""Declares the families of the quotas of users and client ids: what limited clients use, and how long they have to wait.

Only clients with a quota are measured. A label is empty where the quota does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import nan
from typing import TYPE_CHECKING

from ottla.broker.metrics.families import Family, Kind, Reading, gauge, labelled, labels_text
from ottla.broker.quotas.quota_type import RESOURCES, QuotaType
from ottla.controller.znodes.layout import sanitize

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View
    from ottla.broker.quotas.quota_bounds import Tags
    from ottla.broker.quotas.sensors import Sensor
    from ottla.broker.quotas.token_bucket import TokenBucket

_PREFIX = "kafka_server_quota_"
_LABELS = ("resource", "user", "clientId")
_OF_USER = "kafka.server:type={},user=*"
_OF_CLIENT_ID = "kafka.server:client-id=*,type={}"
_OF_BOTH = "kafka.server:client-id=*,type={},user=*"


def _sensors(view: View, quotas: Iterable[QuotaType]) -> Iterable[tuple[QuotaType, Sensor]]:
    kept = view.services.quotas
    by_type = {QuotaType.PRODUCE: kept.produce, QuotaType.FETCH: kept.fetch, QuotaType.REQUEST: kept.request}
    for quota in quotas:
        for sensor in list(by_type[quota].sensors.values()):
            yield quota, sensor


def _buckets(view: View) -> list[TokenBucket]:
    return list(view.services.quotas.mutations.sensors.values())


def _text(quota: QuotaType, tags: Tags) -> str:
    return labels_text(_LABELS, (RESOURCES[quota], sanitize(tags.user), tags.client_id))


def _of_sensors(*quotas: QuotaType) -> Callable[[View], Reading]:
    def read(view: View) -> Reading:
        now_ms = view.services.quotas.now_ms()
        for quota, sensor in _sensors(view, quotas):
            yield _text(quota, sensor.tags), sensor.per_second(now_ms)

    return read


def _of_buckets(value: Callable[[TokenBucket, int], float]) -> Callable[[View], Reading]:
    def read(view: View) -> Reading:
        now_ms = view.services.quotas.now_ms()
        for bucket in _buckets(view):
            yield _text(QuotaType.CONTROLLER_MUTATION, bucket.tags), value(bucket, now_ms)

    return read


def _throttle_times(view: View) -> Reading:
    """Clients that had to wait for no time have NaN, as in Apache Kafka: only waits are averaged."""
    now_ms = view.services.quotas.now_ms()
    for quota, sensor in _sensors(view, (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST)):
        yield _text(quota, sensor.tags), sensor.throttle_time.average(now_ms) or nan
    for bucket in _buckets(view):
        yield _text(QuotaType.CONTROLLER_MUTATION, bucket.tags), bucket.throttle_time.average(now_ms) or nan


def _family(attribute: str, resources: tuple[str, ...], doc: str, read: Callable[[View], Reading], recorded: str) -> Family:
    mbeans = [pattern.format(resource) for resource in resources for pattern in (_OF_USER, _OF_CLIENT_ID, _OF_BOTH)]
    mbeans.remove(recorded)
    return Family(_PREFIX + attribute, Kind.GAUGE, _LABELS, recorded, doc, read, more_mbeans=tuple(mbeans))


QUOTA_FAMILIES: tuple[Family, ...] = (
    _family(
        "byte_rate",
        ("Produce", "Fetch"),
        "Bytes per second of Produce requests, and of answers to the fetches of consumers, by clients that share a quota.",
        _of_sensors(QuotaType.PRODUCE, QuotaType.FETCH),
        _OF_USER.format("Produce"),
    ),
    _family(
        "request_time",
        ("Request",),
        "Time of handlers that clients use, in percent of one handler.",
        _of_sensors(QuotaType.REQUEST),
        _OF_CLIENT_ID.format("Request"),
    ),
    _family(
        "tokens",
        ("ControllerMutation",),
        "Partitions that clients may create and delete at once; negative while their quota is exhausted.",
        _of_buckets(lambda bucket, now_ms: bucket.tokens(now_ms)),
        _OF_USER.format("ControllerMutation"),
    ),
    _family(
        "mutation_rate",
        ("ControllerMutation",),
        "Partitions that clients create and delete per second.",
        _of_buckets(lambda bucket, now_ms: bucket.mutation_rate.per_second(now_ms)),
        _OF_USER.format("ControllerMutation"),
    ),
    _family(
        "throttle_time",
        ("Produce", "Fetch", "Request", "ControllerMutation"),
        "Average time for which throttled clients have to wait, in milliseconds; NaN for clients that were not throttled.",
        _throttle_times,
        _OF_USER.format("Produce"),
    ),
    labelled(
        _PREFIX + "queue_size",
        Kind.GAUGE,
        ("resource",),
        "kafka.server:type=Produce",
        "Connections that are not read now because their clients have exceeded a quota.",
        lambda view: (((RESOURCES[quota],), view.services.quotas.delayed[quota]) for quota in QuotaType),
        more_mbeans=("kafka.server:type=Fetch", "kafka.server:type=Request", "kafka.server:type=ControllerMutation"),
    ),
    gauge(
        _PREFIX + "exempt_request_time",
        "kafka.server:type=Request",
        "Time of handlers for requests without a request quota, in percent of one handler; counted while any request quota is set.",
        lambda view: view.services.quotas.exempt_request_time.per_second(view.services.quotas.now_ms()),
    ),
)
