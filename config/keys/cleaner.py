"""Declares the keys of the log cleaner: the compaction of logs."""

from ottla.config.schema.key import CLUSTER, DAY, DOUBLE_MAX, LONG_MAX, MEDIUM, SECOND, KiB, MiB, key
from ottla.config.schema.types import Bool, Double, Int, Long

LOG_CLEANER_BACKOFF_MS = key(
    "log.cleaner.backoff.ms",
    Long(0),
    default=15 * SECOND,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How long the cleaner sleeps when there is nothing to clean.",
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE = key(
    "log.cleaner.dedupe.buffer.size",
    Long(),
    default=128 * MiB,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="Memory that all cleaner threads together may use for the map from keys to their last offsets.",
)
LOG_CLEANER_DELETE_RETENTION_MS = key(
    "log.cleaner.delete.retention.ms",
    Long(0),
    default=DAY,
    topic="delete.retention.ms",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How long tombstones and transaction markers stay in a compacted log, so that consumers can read them.",
)
LOG_CLEANER_ENABLE = key(
    "log.cleaner.enable",
    Bool(),
    default=True,
    importance=MEDIUM,
    effective=True,
    doc="Runs the cleaner. Without it compacted topics grow without bound, among them the offsets topic.",
)
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = key(
    "log.cleaner.io.buffer.load.factor",
    Double(),
    default=0.9,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How full the map from keys to offsets may become.",
)
LOG_CLEANER_IO_BUFFER_SIZE = key(
    "log.cleaner.io.buffer.size",
    Int(0),
    default=512 * KiB,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="Memory that all cleaner threads together use for reading and writing.",
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = key(
    "log.cleaner.io.max.bytes.per.second",
    Double(),
    default=DOUBLE_MAX,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How many bytes a second the cleaner reads and writes at most.",
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS = key(
    "log.cleaner.max.compaction.lag.ms",
    Long(1),
    default=LONG_MAX,
    topic="max.compaction.lag.ms",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="The longest time a message stays uncompacted.",
)
LOG_CLEANER_MIN_CLEANABLE_RATIO = key(
    "log.cleaner.min.cleanable.ratio",
    Double(0, 1),
    default=0.5,
    topic="min.cleanable.dirty.ratio",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="Smallest uncleaned part of a log at which the log is cleaned.",
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS = key(
    "log.cleaner.min.compaction.lag.ms",
    Long(0),
    default=0,
    topic="min.compaction.lag.ms",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="The shortest time a message stays uncompacted.",
)
LOG_CLEANER_THREADS = key(
    "log.cleaner.threads",
    Int(0),
    default=1,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How many logs are cleaned at once.",
)
