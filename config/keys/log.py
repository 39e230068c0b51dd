"""Declares the keys of the log: directories, segments, indexes, retention, flushing, timestamps and compression."""

from ottla.config.schema.key import CLUSTER, HIGH, HOUR, LONG_MAX, LOW, MEDIUM, MINUTE, SECOND, GiB, KiB, MiB, Reading, key
from ottla.config.schema.metadata_version import MetadataVersion
from ottla.config.schema.types import Bool, Int, List, Long, String

COMPRESSION_GZIP_LEVEL = key(
    "compression.gzip.level",
    Int(1, 9, or_else=-1),
    default=-1,
    topic="compression.gzip.level",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="The gzip level used when the broker compresses a batch itself.",
)
COMPRESSION_LZ4_LEVEL = key(
    "compression.lz4.level",
    Int(1, 17),
    default=9,
    topic="compression.lz4.level",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="The lz4 level used when the broker compresses a batch itself.",
)
COMPRESSION_TYPE = key(
    "compression.type",
    String(choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    default="producer",
    topic="compression.type",
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="The codec that batches have on disk; with producer they are kept as sent, otherwise the broker recompresses.",
)
COMPRESSION_ZSTD_LEVEL = key(
    "compression.zstd.level",
    Int(-131_072, 22),
    default=3,
    topic="compression.zstd.level",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="The zstd level used when the broker compresses a batch itself.",
)
LOG_CLEANUP_POLICY = key(
    "log.cleanup.policy",
    List(choices=("compact", "delete")),
    default=("delete",),
    topic="cleanup.policy",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="What happens to old data: delete drops whole segments, compact keeps the last record of every key; both may be combined.",
)
LOG_DIR = key(
    "log.dir",
    String(),
    default="/tmp/kafka-logs",
    standalone="./data",
    importance=HIGH,
    effective=True,
    doc="The log directory, when log.dirs is not set.",
)
LOG_DIR_FAILURE_TIMEOUT_MS = key(
    "log.dir.failure.timeout.ms",
    Long(1),
    default=30 * SECOND,
    importance=LOW,
    doc="In KRaft mode, how long a failed log directory may go unreported before the broker stops.",
)
LOG_FLUSH_INTERVAL_MESSAGES = key(
    "log.flush.interval.messages",
    Long(1),
    default=LONG_MAX,
    topic="flush.messages",
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="After how many messages a partition is forced to disk; by default the operating system decides.",
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = key(
    "log.flush.offset.checkpoint.interval.ms",
    Int(0),
    default=MINUTE,
    importance=HIGH,
    effective=True,
    doc="How often the recovery points, up to which the logs are known to be on disk, are written to their checkpoint.",
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = key(
    "log.flush.scheduler.interval.ms",
    Long(),
    default=LONG_MAX,
    importance=HIGH,
    effective=True,
    doc="How often the broker looks for partitions that are due to be forced to disk.",
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = key(
    "log.flush.start.offset.checkpoint.interval.ms",
    Int(0),
    default=MINUTE,
    importance=HIGH,
    effective=True,
    doc="How often the log start offsets are written to their checkpoint.",
)
LOG_INDEX_INTERVAL_BYTES = key(
    "log.index.interval.bytes",
    Int(0),
    default=4 * KiB,
    topic="index.interval.bytes",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="Bytes of messages between two entries of the offset index.",
)
LOG_INDEX_SIZE_MAX_BYTES = key(
    "log.index.size.max.bytes",
    Int(4),
    default=10 * MiB,
    topic="segment.index.bytes",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How large an offset index or time index may grow; the segment is closed when it is full.",
)
LOG_INITIAL_TASK_DELAY_MS = key(
    "log.initial.task.delay.ms",
    Long(0),
    default=30 * SECOND,
    importance=LOW,
    internal=True,
    effective=True,
    doc="How long after the start the periodic work on the logs begins.",
)
LOG_MESSAGE_DOWNCONVERSION_ENABLE = key(
    "log.message.downconversion.enable",
    Bool(),
    default=True,
    topic="message.downconversion.enable",
    importance=LOW,
    dynamic=CLUSTER,
    effective=True,
    doc="Rewrites batches into an older format for consumers that support no newer one.",
)
LOG_MESSAGE_FORMAT_VERSION = key(
    "log.message.format.version",
    MetadataVersion(),
    default="3.0-IV1",
    topic="message.format.version",
    importance=MEDIUM,
    effective=True,
    doc="The message format of the oldest consumers; without effect while inter.broker.protocol.version is 3.0 or later.",
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = key(
    "log.message.timestamp.after.max.ms",
    Long(0),
    default=LONG_MAX,
    topic="message.timestamp.after.max.ms",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="With CreateTime, how far in the future of the broker's clock a message's timestamp may lie.",
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = key(
    "log.message.timestamp.before.max.ms",
    Long(0),
    default=LONG_MAX,
    topic="message.timestamp.before.max.ms",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="With CreateTime, how far in the past of the broker's clock a message's timestamp may lie.",
)
LOG_MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS = key(
    "log.message.timestamp.difference.max.ms",
    Long(0),
    default=LONG_MAX,
    topic="message.timestamp.difference.max.ms",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="The older limit for both directions; it applies where the before and after keys have their defaults.",
)
LOG_MESSAGE_TIMESTAMP_TYPE = key(
    "log.message.timestamp.type",
    String(choices=("CreateTime", "LogAppendTime")),
    default="CreateTime",
    topic="message.timestamp.type",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="Whether a message keeps the time of its producer (CreateTime) or gets that of the append (LogAppendTime).",
)
LOG_PREALLOCATE = key(
    "log.preallocate",
    Bool(),
    default=False,
    topic="preallocate",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="Reserves the whole size of a segment file when it is created.",
)
LOG_RETENTION_BYTES = key(
    "log.retention.bytes",
    Long(),
    default=-1,
    topic="retention.bytes",
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="How many bytes a partition keeps before its oldest segments are deleted; -1 for no limit.",
)
LOG_RETENTION_CHECK_INTERVAL_MS = key(
    "log.retention.check.interval.ms",
    Long(1),
    default=5 * MINUTE,
    importance=MEDIUM,
    effective=True,
    doc="How often the broker looks for segments that retention lets it delete.",
)
LOG_RETENTION_HOURS = key(
    "log.retention.hours",
    Int(),
    default=168,
    importance=HIGH,
    effective=True,
    doc="How long a segment is kept, in hours, when neither minutes nor milliseconds are given.",
)
LOG_RETENTION_MINUTES = key(
    "log.retention.minutes",
    Int(),
    importance=HIGH,
    effective=True,
    synonyms=(LOG_RETENTION_HOURS,),
    doc="How long a segment is kept, in minutes, when milliseconds are not given.",
)
LOG_ROLL_HOURS = key(
    "log.roll.hours",
    Int(1),
    default=168,
    importance=HIGH,
    effective=True,
    doc="The age in hours at which a segment is closed, when log.roll.ms is not given.",
)
LOG_ROLL_JITTER_HOURS = key(
    "log.roll.jitter.hours",
    Int(0),
    default=0,
    importance=HIGH,
    effective=True,
    doc="Upper bound, in hours, of the random time by which a segment is closed early, when log.roll.jitter.ms is not given.",
)
LOG_SEGMENT_BYTES = key(
    "log.segment.bytes",
    Int(14),
    default=GiB,
    topic="segment.bytes",
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="A segment is closed and a new one begun when it would grow past this many bytes.",
)
LOG_SEGMENT_DELETE_DELAY_MS = key(
    "log.segment.delete.delay.ms",
    Long(0),
    default=MINUTE,
    topic="file.delete.delay.ms",
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="How long the renamed file of a deleted segment is kept before it is removed.",
)
MESSAGE_MAX_BYTES = key(
    "message.max.bytes",
    Int(0),
    default=1_048_588,
    topic="max.message.bytes",
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="The largest record batch, as sent, that a topic accepts.",
)
NUM_RECOVERY_THREADS_PER_DATA_DIR = key(
    "num.recovery.threads.per.data.dir",
    Int(1),
    default=1,
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="How many logs of one directory are recovered at once after a crash, and flushed at once at shutdown.",
)
LOG_DIRS = key(
    "log.dirs",
    String(),
    otherwise=lambda config: config[LOG_DIR],
    importance=HIGH,
    effective=True,
    doc="The directories that hold the partitions, between commas; without it, the one in log.dir.",
)
LOG_FLUSH_INTERVAL_MS = key(
    "log.flush.interval.ms",
    Long(),
    otherwise=lambda config: config[LOG_FLUSH_SCHEDULER_INTERVAL_MS],
    synonyms=(LOG_FLUSH_SCHEDULER_INTERVAL_MS,),
    topic="flush.ms",
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="After how long unflushed messages of a partition are forced to disk.",
)


def _retention_ms(config: Reading) -> int:
    minutes = config[LOG_RETENTION_MINUTES]
    return max(-1, config[LOG_RETENTION_HOURS] * HOUR if minutes is None else minutes * MINUTE)


LOG_RETENTION_MS = key(
    "log.retention.ms",
    Long(),
    otherwise=_retention_ms,
    synonyms=(LOG_RETENTION_MINUTES, LOG_RETENTION_HOURS),
    topic="retention.ms",
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="How long a segment is kept, counted from its newest message; -1 keeps it forever.",
)
LOG_ROLL_JITTER_MS = key(
    "log.roll.jitter.ms",
    Long(),
    otherwise=lambda config: config[LOG_ROLL_JITTER_HOURS] * HOUR,
    synonyms=(LOG_ROLL_JITTER_HOURS,),
    topic="segment.jitter.ms",
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="Upper bound of the random time by which a segment is closed early, so that not all partitions roll at once.",
)
LOG_ROLL_MS = key(
    "log.roll.ms",
    Long(),
    otherwise=lambda config: config[LOG_ROLL_HOURS] * HOUR,
    synonyms=(LOG_ROLL_HOURS,),
    topic="segment.ms",
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="A segment of this age is closed and a new one begun, even if it is not full.",
)
