"""Declares the keys of metrics: reporters, and the windows over which quotas are measured."""

from ottla.config.schema.key import CLUSTER, LOW, SECOND, MiB, key
from ottla.config.schema.types import Bool, Class, Int, List, Long, String

ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_NUM = key(
    "alter.log.dirs.replication.quota.window.num",
    Int(1),
    default=11,
    importance=LOW,
    doc="How many samples the quota for moves between log directories is measured over.",
)
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = key(
    "alter.log.dirs.replication.quota.window.size.seconds",
    Int(1),
    default=1,
    importance=LOW,
    doc="Length of one sample of the quota for moves between log directories.",
)
AUTO_INCLUDE_JMX_REPORTER = key(
    "auto.include.jmx.reporter", Bool(), default=True, importance=LOW, doc="Adds the JMX reporter of the Java platform to metric.reporters."
)
CLIENT_QUOTA_CALLBACK_CLASS = key(
    "client.quota.callback.class",
    Class(),
    importance=LOW,
    effective=True,
    doc="A class of Java that decides which quota applies to a client. It cannot be loaded, so a value stops the start.",
)
CONTROLLER_QUOTA_WINDOW_NUM = key(
    "controller.quota.window.num",
    Int(1),
    default=11,
    importance=LOW,
    effective=True,
    doc="How many samples the quota for changes of the cluster is measured over.",
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = key(
    "controller.quota.window.size.seconds",
    Int(1),
    default=1,
    importance=LOW,
    effective=True,
    doc="Length of one sample of the quota for changes of the cluster.",
)
KAFKA_METRICS_POLLING_INTERVAL_SECS = key(
    "kafka.metrics.polling.interval.secs",
    Int(1),
    default=10,
    importance=LOW,
    doc="How often the reporters in kafka.metrics.reporters are run.",
)
KAFKA_METRICS_REPORTERS = key(
    "kafka.metrics.reporters", List(), default=(), importance=LOW, doc="Reporter classes of the older metrics library of the Java platform."
)
METRIC_REPORTERS = key(
    "metric.reporters", List(), default=(), importance=LOW, dynamic=CLUSTER, doc="Reporter classes of the Java platform."
)
METRICS_NUM_SAMPLES = key(
    "metrics.num.samples", Int(1), default=2, importance=LOW, effective=True, doc="How many samples a metric is measured over."
)
METRICS_RECORDING_LEVEL = key(
    "metrics.recording.level", String(), default="INFO", importance=LOW, doc="How detailed the metrics are: INFO, DEBUG or TRACE."
)
METRICS_SAMPLE_WINDOW_MS = key(
    "metrics.sample.window.ms", Long(1), default=30 * SECOND, importance=LOW, effective=True, doc="How long one sample of a metric is."
)
QUOTA_WINDOW_NUM = key(
    "quota.window.num", Int(1), default=11, importance=LOW, effective=True, doc="How many samples a client quota is measured over."
)
QUOTA_WINDOW_SIZE_SECONDS = key(
    "quota.window.size.seconds", Int(1), default=1, importance=LOW, effective=True, doc="Length of one sample of a client quota."
)
REPLICATION_QUOTA_WINDOW_NUM = key(
    "replication.quota.window.num",
    Int(1),
    default=11,
    importance=LOW,
    effective=True,
    doc="How many samples a replication quota is measured over.",
)
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = key(
    "replication.quota.window.size.seconds",
    Int(1),
    default=1,
    importance=LOW,
    effective=True,
    doc="Length of one sample of a replication quota.",
)
TELEMETRY_MAX_BYTES = key(
    "telemetry.max.bytes",
    Int(1),
    default=MiB,
    importance=LOW,
    effective=True,
    doc="How many bytes of metrics a client may push at once, compressed and expanded.",
)
