"""Declares the keys that are Ottla's own: Apache Kafka leaves their subjects to other programs. DescribeConfigs does
not list them."""

import re
from urllib.parse import urlsplit

from ottla.config.errors import ConfigValueError
from ottla.config.schema.key import DAY, LOW, SECOND, MiB, key
from ottla.config.schema.types import Bool, Int, List, Long, PasswordType, String

_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^\[\]:/\s]*)):(\d{1,5})")


def address(name: str, value: str) -> tuple[str, int]:
    """Host and port of `host:port`; an empty host means all interfaces, IPv6 addresses are in brackets. Raises
    ConfigValueError."""
    match = _ADDRESS.fullmatch(value)
    if match is None or int(match[3]) > 65535:
        raise ConfigValueError(name, value, "Must be host:port, as 127.0.0.1:9404; without a host, :9404, it is every interface")
    return match[1] or match[2] or "", int(match[3])


def _check_address(name: str, value: str) -> None:
    address(name, value)


def _check_http_url(name: str, value: str) -> None:
    try:
        parts = urlsplit(value)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and parts.username is None
    except ValueError:
        is_whole = False
    if not is_whole or not value.isascii() or any(letter.isspace() or not letter.isprintable() for letter in value):
        raise ConfigValueError(name, value, "Must be an http or https URL, as http://127.0.0.1:4318/v1/metrics")


OTTLA_METRICS_LISTENER = key(
    "ottla.metrics.listener",
    String(check=_check_address, described_as="host:port"),
    importance=LOW,
    effective=True,
    internal=True,
    doc="The HTTP address of the metrics for Prometheus (/metrics) and of the health checks (/health, /health/live, /health/ready), "
    "without authentication. Without it no metrics are served. Port 0 takes a free one, which is logged.",
)
OTTLA_METADATA_FILE = key(
    "ottla.metadata.file",
    String(non_empty=True),
    importance=LOW,
    effective=True,
    internal=True,
    doc="The file of the embedded metadata store that the broker processes of one host share, when `zookeeper.connect` is not set. It "
    "must be on a local file system. Without it the file is in the first log directory, and the broker is alone.",
)
OTTLA_AUTHENTICATION_TIMEOUT_MS = key(
    "ottla.authentication.timeout.ms",
    Int(1),
    default=30 * SECOND,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How long a client of a SASL listener may take to authenticate before its connection is closed.",
)
OTTLA_JAAS_FILE = key(
    "ottla.jaas.file",
    String(non_empty=True),
    importance=LOW,
    effective=True,
    internal=True,
    doc="A JAAS file, as Java finds by the system property `java.security.auth.login.config`. A SASL mechanism without `sasl.jaas.config` "
    "of its own takes the section `LISTENER.KafkaServer`, the listener in lower case, or else `KafkaServer`.",
)
OTTLA_SASL_OAUTHBEARER_ALLOWED_URLS = key(
    "ottla.sasl.oauthbearer.allowed.urls",
    List(),
    importance=LOW,
    effective=True,
    internal=True,
    doc="The URLs that `sasl.oauthbearer.jwks.endpoint.url` may have; without it, any. Java has the system property "
    "`org.apache.kafka.sasl.oauthbearer.allowed.urls`.",
)
OTTLA_ZOOKEEPER_AUTH = key(
    "ottla.zookeeper.auth",
    PasswordType(),
    importance=LOW,
    effective=True,
    internal=True,
    doc="The broker's credentials for ZooKeeper, as user:password of ZooKeeper's digest scheme. With `zookeeper.set.acl` only a "
    "client with the same credentials may write the znodes that the broker creates. So all brokers of the cluster need the same ones.",
)
OTTLA_TLS_HANDSHAKES = key(
    "ottla.tls.handshakes",
    Int(1),
    default=64,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How many TLS handshakes one listener performs at a time; further clients wait to be accepted. While some wait, a handshake that "
    "takes longer than two seconds is ended.",
)
OTTLA_TLS_HANDSHAKE_TIMEOUT_MS = key(
    "ottla.tls.handshake.timeout.ms",
    Int(1),
    default=30 * SECOND,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How long a TLS handshake may take; the connection is closed after that.",
)
OTTLA_LOG_FORMAT = key(
    "ottla.log.format",
    String(choices=("text", "json", "ecs")),
    default="text",
    importance=LOW,
    effective=True,
    internal=True,
    doc="The form of the broker's own log: text, one JSON object a line with the values of the message as fields, or the same under the "
    "names of the Elastic Common Schema.",
)
OTTLA_LOG_FILE = key(
    "ottla.log.file",
    String(non_empty=True),
    importance=LOW,
    effective=True,
    internal=True,
    doc="The file of the broker's own log, which rotates. Its folder must exist. Without it the log goes to standard error.",
)
OTTLA_LOG_FILE_MAX_BYTES = key(
    "ottla.log.file.max.bytes",
    Long(1024),
    default=100 * MiB,
    importance=LOW,
    effective=True,
    internal=True,
    doc="The size at which `ottla.log.file` rotates.",
)
OTTLA_LOG_FILE_ROLL_MS = key(
    "ottla.log.file.roll.ms",
    Long(1000),
    default=DAY,
    importance=LOW,
    effective=True,
    internal=True,
    doc="The age at which `ottla.log.file` rotates.",
)
OTTLA_LOG_FILE_RETAINED = key(
    "ottla.log.file.retained",
    Int(0, 1000),
    default=10,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How many rotated files stay beside `ottla.log.file`, as `FILE.1`, `FILE.2` and so on.",
)
OTTLA_SLOW_REQUEST_MS = key(
    "ottla.slow.request.ms",
    Long(0),
    importance=LOW,
    effective=True,
    internal=True,
    doc="A request that takes at least this long gets one line in the log, with its client and its time in each stage. This includes the "
    "time for which the client lets a request wait, such as `fetch.max.wait.ms`. Without this key no request is timed for the log.",
)
OTTLA_GROUP_LAG_MAX_SERIES = key(
    "ottla.group.lag.max.series",
    Int(0),
    default=0,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How many committed offsets, each of a group and a partition, appear in the metrics with their lag. 0 shows none.",
)
OTTLA_TELEMETRY_MAX_INSTANCES = key(
    "ottla.telemetry.max.instances",
    Int(1, 16_384),
    default=1_000,
    importance=LOW,
    effective=True,
    internal=True,
    doc="Of how many client instances the broker remembers the subscription and the pushed metrics. Those that were used least recently "
    "are forgotten first.",
)
OTTLA_TELEMETRY_MAX_SERIES = key(
    "ottla.telemetry.max.series",
    Int(0),
    default=50_000,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How many values that clients have pushed appear in the metrics together. Clients that pushed least recently are forgotten for "
    "others. 0 shows none.",
)
OTTLA_TELEMETRY_OTLP_URL = key(
    "ottla.telemetry.otlp.url",
    String(check=_check_http_url, described_as="http or https URL"),
    importance=LOW,
    effective=True,
    internal=True,
    doc="The address of a collector that gets the metrics which clients push, by OTLP over HTTP, as http://127.0.0.1:4318/v1/metrics. Two "
    "headers name the client. While the collector does not take them, up to 16 MiB wait, and further ones are dropped.",
)
OTTLA_LARGE_REQUESTS_MAX_BYTES = key(
    "ottla.large.requests.max.bytes",
    Long(1),
    default=256 * MiB,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How much memory requests of more than 8 MiB, and all that wait, may take. Unfinished ones of more than 256 KiB take half of it in "
    "addition, smaller ones a quarter, unread answers half. `queued.max.request.bytes` replaces this limit.",
)
OTTLA_INTERNAL_TOPICS_CAN_GROW = key(
    "ottla.internal.topics.can.grow",
    Bool(),
    default=False,
    importance=LOW,
    effective=True,
    internal=True,
    doc="Whether clients may add partitions to `__consumer_offsets`, `__transaction_state` and `__share_group_state`. Groups and "
    "transactional ids stay in the partitions that were there before. Brokers of Apache Kafka in the same cluster would look for them in "
    "others.",
)
OTTLA_ALL_GROUPS_MAX_METADATA_BYTES = key(
    "ottla.all.groups.max.metadata.bytes",
    Long(1),
    default=256 * MiB,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How many bytes the groups that a broker coordinates may take together: names, metadata and assignments of their members, and some "
    "for each member and group. A member that joins with more gets GROUP_MAX_SIZE_REACHED, unless its metadata do not grow.",
)
OTTLA_GROUP_MAX_METADATA_BYTES = key(
    "ottla.group.max.metadata.bytes",
    Long(1),
    default=16 * MiB,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How many bytes the members of a group may take together: metadata for all their protocols, assignments, and twice their names. "
    "`group.max.size` limits only their number. A member that joins with more gets GROUP_MAX_SIZE_REACHED.",
)
OTTLA_GROUP_CONSUMER_HEARTBEATS_PER_SECOND = key(
    "ottla.group.consumer.heartbeats.per.second",
    Int(0),
    default=1_000,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How many heartbeats a second all members of consumer groups may send to a broker. While they are fewer, the default of "
    "`group.consumer.heartbeat.interval.ms` is shortened, to 500 ms at least, so that rebalances are short. 0 shortens nothing.",
)
OTTLA_EXPANSION_MAX_BYTES = key(
    "ottla.expansion.max.bytes",
    Long(1),
    default=256 * MiB,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How much memory the records of all clients may take together while they are decompressed, converted between message formats and "
    "compressed again. Batches that expand to little need none of it. The others wait for room, in order; one that needs more is alone.",
)
OTTLA_REMOTE_MEMORY_BYTES = key(
    "ottla.remote.memory.bytes",
    Long(MiB),
    default=64 * MiB,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How much memory transfers to and from the remote store of tiered storage may take together: 16 MiB for each segment that is "
    "copied, `chunk.size` for each chunk and 8 MiB for the indexes of each segment that are read. One that needs more is alone.",
)
OTTLA_REMOTE_LEFTOVERS_INTERVAL_MS = key(
    "ottla.remote.leftovers.interval.ms",
    Long(0),
    default=DAY,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How often the broker of the controller lists the remote store of tiered storage, to find copies of topics that do not exist any "
    "more. The second listing that shows them removes them. The first one is an hour after the start. 0 lists nothing.",
)
OTTLA_REMOTE_CHUNK_CACHE_BYTES = key(
    "ottla.remote.chunk.cache.bytes",
    Long(MiB),
    default=1024 * MiB,
    importance=LOW,
    effective=True,
    internal=True,
    doc="How many bytes of records of remote segments are kept in the first log directory, at most a tenth of the space that is free there "
    "when the broker starts. A twentieth of the disk, or 4 GiB, is left to logs.",
)
