"""Decides about the requests of clients for subscriptions to their metrics, and about the metrics that they push (KIP-714).

The order of the checks and the codes are those of Apache Kafka's ClientMetricsManager. Pushed bytes are decompressed and read in worker
threads, within the limits of `Expansion`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from ottla.broker.configuration.resource_configs import ResourceConfigs
from ottla.broker.network.offenders import Offenders
from ottla.broker.request.expansion import Expansion
from ottla.broker.security.client import Client
from ottla.broker.telemetry.forwarding import Forwarder, Pushed
from ottla.broker.telemetry.instances import MAX_SERIES_OF_INSTANCE, Instance, Instances
from ottla.broker.telemetry.otlp import MalformedMetrics
from ottla.broker.telemetry.series import Sample, samples_of
from ottla.broker.telemetry.subscriptions import Merged, Properties, Subscription, merged, subscription_of
from ottla.config.broker import BrokerConfig
from ottla.config.keys.metrics import TELEMETRY_MAX_BYTES
from ottla.config.keys.own import OTTLA_TELEMETRY_MAX_INSTANCES, OTTLA_TELEMETRY_MAX_SERIES, OTTLA_TELEMETRY_OTLP_URL
from ottla.config.resources import MATCHED
from ottla.pauses import pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.protocol.records.compression import CompressionCodec, decompress
from ottla.protocol.records.errors import DecompressionTooLarge, RecordFormatError
from ottla.protocol.uuid import ZERO_UUID, to_text
from ottla.storage.disk.clock import Clock
from ottla.storage.disk.yielding import PacedYield

logger = logging.getLogger(__name__)

ACCEPTED_CODECS: Final = (CompressionCodec.ZSTD, CompressionCodec.LZ4, CompressionCodec.GZIP, CompressionCodec.SNAPPY)
"""The codecs that clients may use, the preferred one first. Metrics that are not compressed are accepted, too."""
_KNOWN_CODECS: Final = frozenset(CompressionCodec)
_RESERVED_IDS: Final = frozenset({ZERO_UUID, (1).to_bytes(16, "big")})
_AGAIN_AT_ONCE: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors after which a client may ask for its subscription before the interval has passed."""
_REASONS: Final = {
    ErrorCode.INVALID_REQUEST: "they follow the last push of the client",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "their codec is unknown",
    ErrorCode.TELEMETRY_TOO_LARGE: "they are larger than telemetry.max.bytes",
}
"""The reasons of errors that no client library causes, for the log."""


class ClientTelemetry:
    """The telemetry of one broker. On the event loop."""

    def __init__(
        self, config: BrokerConfig, configs: ResourceConfigs, clock: Clock, expansion: Expansion, random_bytes: Callable[[int], bytes]
    ) -> None:
        self.max_bytes = config[TELEMETRY_MAX_BYTES]
        self.instances = Instances(config[OTTLA_TELEMETRY_MAX_INSTANCES], config[OTTLA_TELEMETRY_MAX_SERIES])
        self.unknown_subscriptions = 0
        """The number of pushes with the id of another subscription."""
        url = config[OTTLA_TELEMETRY_OTLP_URL]
        self.forwarder = Forwarder(url) if url else None
        """Sends the metrics to a collector, if there is one."""
        self._configs = configs
        self._clock = clock
        self._expansion = expansion
        self._random_bytes = random_bytes
        self._version = 0
        self._parsed: dict[str, tuple[Mapping[str, str], Subscription | None]] = {}
        """The subscriptions by name, each with the configuration from which it was made."""
        self._offenders = Offenders(logger.warning, "pushed metrics were refused")

    def on_change(self) -> None:
        """Subscriptions have changed: clients get theirs anew."""
        self._version += 1

    def has_subscriptions(self) -> bool:
        """Whether there is any subscription."""
        return bool(self._configs.configs)

    def close(self) -> None:
        """Forward no more metrics."""
        if self.forwarder is not None:
            self.forwarder.close()

    def expire(self) -> None:
        """Forget clients that have been silent for too long."""
        self.instances.expire(self._clock.now_ms())

    async def subscribe(self, instance_id: bytes, client: Client, client_id: str | None) -> tuple[ErrorCode, bytes, Merged | None]:
        """The error, or the id of the client instance, which is new if the given one is zero, and its subscription."""
        if instance_id == ZERO_UUID:
            instance_id = self._new_id()
        instance = await self._instance(instance_id, client, client_id)
        if not instance.may_get(self._clock.now_ms()) and instance.last_error not in _AGAIN_AT_ONCE:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, ZERO_UUID, None
        instance.last_error = ErrorCode.NONE
        return ErrorCode.NONE, instance_id, instance.subscription

    async def push(self, request: PushTelemetryRequest, client: Client, client_id: str | None) -> ErrorCode:
        """Take over the metrics of a client, or return the error."""
        if request.client_instance_id in _RESERVED_IDS:
            return ErrorCode.INVALID_REQUEST
        instance = await self._instance(request.client_instance_id, client, client_id)
        error = self._error(request, instance)
        instance.is_terminating = request.terminating
        if error in _REASONS:
            self._report(client, client_id, _REASONS[error])
        if not error and request.metrics:
            error = await self._take_over(request, instance, client, client_id)
        instance.last_error = error
        return error

    def _new_id(self) -> bytes:
        while True:
            new = UUID(bytes=self._random_bytes(16), version=4).bytes
            if self.instances.get(new) is None and not to_text(new).startswith("-"):  # which tools would take for an option
                return new

    async def _instance(self, instance_id: bytes, client: Client, client_id: str | None) -> Instance:
        """The instance, with its subscription as it is now."""
        instance = self.instances.get(instance_id)
        while instance is None or instance.version != self._version:
            version = self._version
            subscription = await self._subscription(instance_id, _properties(instance_id, client, client_id))
            instance = self.instances.get(instance_id)
            if instance is None:
                instance = Instance(subscription, version)
                break
            if instance.version != version:
                instance.begin(subscription, version)
        self.instances.use(instance_id, instance, self._clock.now_ms())
        return instance

    async def _subscription(self, instance_id: bytes, properties: Properties) -> Merged:
        parsed: dict[str, tuple[Mapping[str, str], Subscription | None]] = {}
        matching = []
        for name, overrides in list(self._configs.configs.items()):
            known = self._parsed.get(name)
            if known is None or known[0] is not overrides:
                known = overrides, subscription_of(overrides)
                if known[1] is None:
                    logger.error("the subscription %s of metrics of clients cannot be used; set its configuration again", name)
            parsed[name] = known
            if known[1] is not None and known[1].matches(properties):
                matching.append(known[1])
            await pause()
        self._parsed = parsed
        return merged(matching, instance_id)

    def _error(self, request: PushTelemetryRequest, instance: Instance) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.may_push(self._clock.now_ms()) and not request.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.subscription.subscription_id:
            self.unknown_subscriptions += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type not in _KNOWN_CODECS:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.TELEMETRY_TOO_LARGE if len(request.metrics) > self.max_bytes else ErrorCode.NONE

    async def _take_over(self, request: PushTelemetryRequest, instance: Instance, client: Client, client_id: str | None) -> ErrorCode:
        instance_id = request.client_instance_id
        read = partial(_read, request.compression_type, request.metrics, client_id or "", to_text(instance_id), self.max_bytes)
        try:
            data, samples, left_out = await self._expansion.run(read)
        except (DecompressionTooLarge, _TooLarge):
            self._report(client, client_id, f"they expand to more than telemetry.max.bytes={self.max_bytes}")
            return ErrorCode.TELEMETRY_TOO_LARGE
        except (MalformedMetrics, RecordFormatError) as error:
            self._report(client, client_id, str(error))
            return ErrorCode.INVALID_RECORD
        if self.forwarder is not None:
            self.forwarder.add(Pushed(data, client_id or "", to_text(instance_id)))
        self.instances.not_shown += left_out
        self.instances.add(instance_id, instance, samples)
        return ErrorCode.NONE

    def _report(self, client: Client, client_id: str | None, reason: str) -> None:
        line = f"{client.connection_id} on listener {client.listener_name}: pushed metrics are refused: {reason} (client id {client_id})"
        self._offenders.report(client.client_host, line, self._clock.monotonic())


class _TooLarge(Exception):
    """The metrics expand to more than the configured limit."""


def _read(codec: int, metrics: bytes, client_id: str, instance_id: str, max_bytes: int, limit: int) -> tuple[bytes, list[Sample], int]:
    """Decompresses metrics and reads them, in a worker thread; returns both.

    Raises DecompressionTooLarge if `limit` is too small, but not yet `max_bytes`.
    """
    try:
        data = decompress(codec, metrics, min(limit, max_bytes))
    except DecompressionTooLarge:
        if limit < max_bytes:
            raise
        raise _TooLarge from None
    return data, *samples_of(data, client_id, instance_id, MAX_SERIES_OF_INSTANCE, PacedYield())


def _properties(instance_id: bytes, client: Client, client_id: str | None) -> Properties:
    values = (
        to_text(instance_id),
        client_id,
        client.client_software_name,
        client.client_software_version,
        client.client_host,
        str(client.client_port),
    )
    return dict(zip(MATCHED, values, strict=True))
