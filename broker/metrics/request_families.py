"""Declares the families of kafka.network: requests by stage, the request channel, processors and handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.metrics.families import MILLISECONDS, Family, Kind, Reading, Value, gauge, labelled, labels_text
from ottla.broker.metrics.request_metrics import request_name

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View

_STATIONS = {
    "queue": ("RequestQueueTimeMs", "Time that requests wait until a handler takes them, from when their bytes were read."),
    "local": ("LocalTimeMs", "Time in the handler; of administration until it is done."),
    "remote": ("RemoteTimeMs", "Time that a handled request waits for replicas, more bytes or other members."),
    "response_queue": ("ResponseQueueTimeMs", "Time that answers wait until they are written."),
    "response_send": ("ResponseSendTimeMs", "Time that writing answers takes."),
    "total": ("TotalTimeMs", "Total time, from the bytes to the answer. At high rates one request in up to 1024 is measured."),
    "throttle": ("ThrottleTimeMs", "Throttle times in answers, because clients have exceeded a quota."),
    "request_bytes": ("RequestBytes", "Sizes of requests in bytes."),
}


def _station(name: str) -> Family:
    mbean, doc = _STATIONS[name]

    scale = 1.0 if name in ("request_bytes", "throttle") else MILLISECONDS
    return _summary(
        mbean, doc, lambda view: (((request,), getattr(stations, name).look()) for request, stations in view.requests.named()), scale
    )


def _conversion(mbean: str, attribute: str, doc: str, scale: float) -> Family:
    return _summary(
        mbean, doc, lambda view: (((of,), getattr(each, attribute).look()) for of, each in view.requests.conversions.items()), scale
    )


def _summary(mbean: str, doc: str, read: Callable[[View], Iterable[tuple[Sequence[object], Value]]], scale: float) -> Family:
    pattern = f"kafka.network:name={mbean},request=*,type=RequestMetrics"
    return labelled(f"kafka_network_requestmetrics_{mbean.lower()}", Kind.SUMMARY, ("request",), pattern, doc, read, scale)


def _response_queues(view: View) -> Reading:
    sizes = [processor.response_queue_size for processor in view.socket_server.processors]
    yield "", sum(sizes)
    for number, size in enumerate(sizes):
        yield labels_text(("processor",), (number,)), size


def _handlers_idle(view: View) -> float:
    channel = view.socket_server.request_channel
    return view.loop_watch.idle_ratio * channel.idle_slots / max(1, channel.slots)


REQUEST_FAMILIES: tuple[Family, ...] = (
    labelled(
        "kafka_network_requestmetrics_requests_total",
        Kind.COUNTER,
        ("request", "version"),
        "kafka.network:name=RequestsPerSec,request=*,type=RequestMetrics,version=*",
        "Requests. A Fetch is a FetchConsumer or FetchFollower, too; AddPartitionsToTxn of brokers are AddPartitionsToTxnVerification.",
        lambda view: (((request, version), count) for request, version, count in list(view.requests.requests())),
    ),
    labelled(
        "kafka_network_requestmetrics_errors_total",
        Kind.COUNTER,
        ("request", "error"),
        "kafka.network:error=*,name=ErrorsPerSec,request=*,type=RequestMetrics",
        "Error codes in answers, NONE as well: one of the request and one of each partition or resource in it.",
        lambda view: (((request_name(key), error), count) for key, error, count in list(view.requests.errors.items())),
    ),
    *(_station(name) for name in _STATIONS),
    _conversion("MessageConversionsTimeMs", "time", "Time of conversions between message formats, by piece of a request.", MILLISECONDS),
    _conversion("TemporaryMemoryBytes", "temporary_bytes", "Bytes that such a conversion takes in memory.", 1.0),
    gauge(
        "kafka_network_requestchannel_requestqueuesize",
        "kafka.network:name=RequestQueueSize,type=RequestChannel",
        "Requests that wait for a handler.",
        lambda view: view.socket_server.request_channel.queue_size,
    ),
    Family(
        "kafka_network_requestchannel_responsequeuesize",
        Kind.GAUGE,
        ("processor",),
        "kafka.network:name=ResponseQueueSize,processor=*,type=RequestChannel",
        "Connections with answers that leave in the next turn of the event loop; without a label, of all processors.",
        _response_queues,
    ),
    gauge(
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka.network:name=NetworkProcessorAvgIdlePercent,type=SocketServer",
        "Share of the last minute, 0 to 1, in which the event loop was idle: all processors share the loop.",
        lambda view: view.loop_watch.idle_ratio,
    ),
    labelled(
        "kafka_network_processor_idlepercent",
        Kind.GAUGE,
        ("networkProcessor",),
        "kafka.network:name=IdlePercent,networkProcessor=*,type=Processor",
        "The same by processor.",
        lambda view: (((number,), view.loop_watch.idle_ratio) for number in range(len(view.socket_server.processors))),
    ),
    gauge(
        "kafka_network_socketserver_expiredconnectionskilledcount",
        "kafka.network:name=ExpiredConnectionsKilledCount,type=SocketServer",
        "Connections that were closed because they were idle (connections.max.idle.ms).",
        lambda view: sum(processor.expired_connections for processor in view.socket_server.processors),
    ),
    gauge(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
        "kafka.server:name=RequestHandlerAvgIdlePercent,type=KafkaRequestHandlerPool",
        "Idle share of the handlers, 0 to 1: that of the event loop, on which they run, times that of free slots (num.io.threads).",
        _handlers_idle,
    ),
)
