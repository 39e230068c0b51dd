"""Metrics, and the windows over which quotas are measured."""

from config.key import CLUSTER, LOW, SECOND, MiB, key
from config.types import Bool, Class, Int, List, Long, String

ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_NUM = key(
    "alter.log.dirs.replication.quota.window.num", Int(1), default=11, importance=LOW, doc="?"
)
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = key(
    "alter.log.dirs.replication.quota.window.size.seconds", Int(1), default=1, importance=LOW, doc="?"
)
AUTO_INCLUDE_JMX_REPORTER = key("auto.include.jmx.reporter", Bool(), default=True, importance=LOW, doc="?")
CLIENT_QUOTA_CALLBACK_CLASS = key("client.quota.callback.class", Class(), importance=LOW, doc="?")
CONTROLLER_QUOTA_WINDOW_NUM = key("controller.quota.window.num", Int(1), default=11, importance=LOW, doc="?")
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = key("controller.quota.window.size.seconds", Int(1), default=1, importance=LOW, doc="?")
KAFKA_METRICS_POLLING_INTERVAL_SECS = key("kafka.metrics.polling.interval.secs", Int(1), default=10, importance=LOW, doc="?")
KAFKA_METRICS_REPORTERS = key("kafka.metrics.reporters", List(), default=(), importance=LOW, doc="?")
METRIC_REPORTERS = key("metric.reporters", List(), default=(), importance=LOW, dynamic=CLUSTER, doc="?")
METRICS_NUM_SAMPLES = key("metrics.num.samples", Int(1), default=2, importance=LOW, doc="?")
METRICS_RECORDING_LEVEL = key("metrics.recording.level", String(), default="INFO", importance=LOW, doc="?")
METRICS_SAMPLE_WINDOW_MS = key("metrics.sample.window.ms", Long(1), default=30 * SECOND, importance=LOW, doc="?")
QUOTA_WINDOW_NUM = key("quota.window.num", Int(1), default=11, importance=LOW, doc="?")
QUOTA_WINDOW_SIZE_SECONDS = key("quota.window.size.seconds", Int(1), default=1, importance=LOW, doc="?")
REPLICATION_QUOTA_WINDOW_NUM = key("replication.quota.window.num", Int(1), default=11, importance=LOW, doc="?")
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = key("replication.quota.window.size.seconds", Int(1), default=1, importance=LOW, doc="?")
TELEMETRY_MAX_BYTES = key("telemetry.max.bytes", Int(1), default=MiB, importance=LOW, doc="?")
