"""Declares the families of kafka.network: requests by stage, the request channel, processors and handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.metrics.families import Family, Kind, Reading, gauge, labels_text
from ottla.broker.metrics.request_metrics import request_name

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View

_REQUEST_METRICS = "kafka.network:name={name},request=*,type=RequestMetrics"
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


def _requests(view: View) -> Reading:
    for request, version, count in list(view.requests.requests()):
        yield labels_text(("request", "version"), (request, version)), count


def _errors(view: View) -> Reading:
    for api_key, error, count in list(view.requests.errors.items()):
        yield labels_text(("request", "error"), (request_name(api_key), error)), count


def _station(name: str) -> Family:
    mbean, doc = _STATIONS[name]

    def read(view: View) -> Reading:
        for request, stations in view.requests.named():
            yield labels_text(("request",), (request,)), getattr(stations, name).look()

    scale = 1.0 if name in ("request_bytes", "throttle") else 0.001
    pattern = _REQUEST_METRICS.format(name=mbean)
    return Family(f"kafka_network_requestmetrics_{mbean.lower()}", Kind.SUMMARY, ("request",), pattern, doc, read, scale)


def _conversion(mbean: str, attribute: str, doc: str, scale: float) -> Family:
    def read(view: View) -> Reading:
        for request, conversions in view.requests.conversions.items():
            yield labels_text(("request",), (request,)), getattr(conversions, attribute).look()

    pattern = _REQUEST_METRICS.format(name=mbean)
    return Family(f"kafka_network_requestmetrics_{mbean.lower()}", Kind.SUMMARY, ("request",), pattern, doc, read, scale)


def _response_queues(view: View) -> Reading:
    sizes = [processor.response_queue_size for processor in view.socket_server.processors]
    yield "", sum(sizes)
    for number, size in enumerate(sizes):
        yield labels_text(("processor",), (number,)), size


def _processors_idle(view: View) -> Reading:
    for number in range(len(view.socket_server.processors)):
        yield labels_text(("networkProcessor",), (number,)), view.loop_watch.idle_ratio


def _handlers_idle(view: View) -> float:
    channel = view.socket_server.request_channel
    return view.loop_watch.idle_ratio * channel.idle_slots / max(1, channel.slots)


REQUEST_FAMILIES: tuple[Family, ...] = (
    Family(
        "kafka_network_requestmetrics_requests_total",
        Kind.COUNTER,
        ("request", "version"),
        "kafka.network:name=RequestsPerSec,request=*,type=RequestMetrics,version=*",
        "Requests. A Fetch is a FetchConsumer or FetchFollower, too; AddPartitionsToTxn of brokers are AddPartitionsToTxnVerification.",
        _requests,
    ),
    Family(
        "kafka_network_requestmetrics_errors_total",
        Kind.COUNTER,
        ("request", "error"),
        "kafka.network:error=*,name=ErrorsPerSec,request=*,type=RequestMetrics",
        "Error codes in answers, NONE as well: one of the request and one of each partition or resource in it.",
        _errors,
    ),
    *(_station(name) for name in _STATIONS),
    _conversion("MessageConversionsTimeMs", "time", "Time of conversions between message formats, by piece of a request.", 0.001),
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
    Family(
        "kafka_network_processor_idlepercent",
        Kind.GAUGE,
        ("networkProcessor",),
        "kafka.network:name=IdlePercent,networkProcessor=*,type=Processor",
        "The same by processor.",
        _processors_idle,
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
