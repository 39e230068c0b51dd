"""Declares the keys of tiered storage: segments that move to a remote store."""

from ottla.config.schema.key import CLUSTER, LONG_MAX, LOW, MEDIUM, SECOND, GiB, key
from ottla.config.schema.types import Bool, Double, Int, Long, String

# The size of a pool of its own, or -1 for that of remote.log.manager.thread.pool.size.
_THREAD_POOL_SIZE = Int(
    1,
    or_else=-1,
    described_as="The default value of -1 means that this will be set to the configured value of remote.log.manager.thread.pool.size, "
    "if available; otherwise, it defaults to 10.",
)

LOG_LOCAL_RETENTION_BYTES = key(
    "log.local.retention.bytes",
    Long(-2),
    default=-2,
    topic="local.retention.bytes",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How many bytes of a partition with tiered storage stay on the broker; -2 for as many as log.retention.bytes.",
)
LOG_LOCAL_RETENTION_MS = key(
    "log.local.retention.ms",
    Long(-2),
    default=-2,
    topic="local.retention.ms",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How long segments of a partition with tiered storage stay on the broker; -2 for as long as log.retention.ms.",
)
REMOTE_FETCH_MAX_WAIT_MS = key(
    "remote.fetch.max.wait.ms",
    Int(1),
    default=500,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How long a fetch waits for the remote store.",
)
REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES = key(
    "remote.log.index.file.cache.total.size.bytes",
    Long(1),
    default=GiB,
    importance=LOW,
    dynamic=CLUSTER,
    effective=True,
    doc="How many bytes of remote indexes are kept on the broker.",
)
REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE = key(
    "remote.log.manager.copier.thread.pool.size",
    _THREAD_POOL_SIZE,
    default=-1,
    importance=MEDIUM,
    effective=True,
    doc="How many segments are copied to the remote store at once.",
)
REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND = key(
    "remote.log.manager.copy.max.bytes.per.second",
    Long(1),
    default=LONG_MAX,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How many bytes a second are copied to the remote store at most.",
)
REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM = key(
    "remote.log.manager.copy.quota.window.num",
    Int(1),
    default=11,
    importance=MEDIUM,
    effective=True,
    doc="How many samples the copy quota is measured over.",
)
REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS = key(
    "remote.log.manager.copy.quota.window.size.seconds",
    Int(1),
    default=1,
    importance=MEDIUM,
    effective=True,
    doc="Length of one sample of the copy quota.",
)
REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE = key(
    "remote.log.manager.expiration.thread.pool.size",
    _THREAD_POOL_SIZE,
    default=-1,
    importance=MEDIUM,
    effective=True,
    doc="How many expiry jobs run against the remote store at once.",
)
REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND = key(
    "remote.log.manager.fetch.max.bytes.per.second",
    Long(1),
    default=LONG_MAX,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How many bytes a second are read from the remote store at most.",
)
REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM = key(
    "remote.log.manager.fetch.quota.window.num",
    Int(1),
    default=11,
    importance=MEDIUM,
    effective=True,
    doc="How many samples the fetch quota is measured over.",
)
REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS = key(
    "remote.log.manager.fetch.quota.window.size.seconds",
    Int(1),
    default=1,
    importance=MEDIUM,
    effective=True,
    doc="Length of one sample of the fetch quota.",
)
REMOTE_LOG_MANAGER_TASK_INTERVAL_MS = key(
    "remote.log.manager.task.interval.ms",
    Long(1),
    default=30 * SECOND,
    importance=LOW,
    effective=True,
    doc="How often the jobs of tiered storage run.",
)
REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MAX_MS = key(
    "remote.log.manager.task.retry.backoff.max.ms",
    Long(1),
    default=30 * SECOND,
    importance=LOW,
    internal=True,
    effective=True,
    doc="The longest wait before a failed job of tiered storage is tried again.",
)
REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MS = key(
    "remote.log.manager.task.retry.backoff.ms",
    Long(1),
    default=500,
    importance=LOW,
    internal=True,
    effective=True,
    doc="The first wait before a failed job of tiered storage is tried again.",
)
REMOTE_LOG_MANAGER_TASK_RETRY_JITTER = key(
    "remote.log.manager.task.retry.jitter",
    Double(0, 0.5),
    default=0.2,
    importance=LOW,
    internal=True,
    effective=True,
    doc="The random part of the wait before a failed job of tiered storage is tried again.",
)
REMOTE_LOG_MANAGER_THREAD_POOL_SIZE = key(
    "remote.log.manager.thread.pool.size",
    Int(1),
    default=10,
    importance=MEDIUM,
    effective=True,
    doc="How many jobs of tiered storage run at once.",
)
REMOTE_LOG_METADATA_CUSTOM_METADATA_MAX_BYTES = key(
    "remote.log.metadata.custom.metadata.max.bytes",
    Int(0),
    default=128,
    importance=LOW,
    effective=True,
    doc="The largest metadata that the remote store may attach to a segment.",
)
REMOTE_LOG_METADATA_MANAGER_CLASS_NAME = key(
    "remote.log.metadata.manager.class.name",
    String(non_empty=True),
    default="org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    importance=MEDIUM,
    effective=True,
    doc="The class that keeps the metadata of remote segments.",
)
REMOTE_LOG_METADATA_MANAGER_CLASS_PATH = key(
    "remote.log.metadata.manager.class.path",
    String(),
    importance=MEDIUM,
    doc="Where the class of remote.log.metadata.manager.class.name is found.",
)
REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX = key(
    "remote.log.metadata.manager.impl.prefix",
    String(non_empty=True),
    default="rlmm.config.",
    importance=MEDIUM,
    effective=True,
    doc="The prefix of the keys that are passed to the class of remote.log.metadata.manager.class.name.",
)
REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME = key(
    "remote.log.metadata.manager.listener.name",
    String(non_empty=True),
    importance=MEDIUM,
    effective=True,
    doc="The listener over which the class of remote.log.metadata.manager.class.name connects to the brokers.",
)
REMOTE_LOG_READER_MAX_PENDING_TASKS = key(
    "remote.log.reader.max.pending.tasks",
    Int(1),
    default=100,
    importance=MEDIUM,
    effective=True,
    doc="How many reads from the remote store may wait.",
)
REMOTE_LOG_READER_THREADS = key(
    "remote.log.reader.threads",
    Int(1),
    default=10,
    importance=MEDIUM,
    effective=True,
    doc="How many reads from the remote store run at once.",
)
REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME = key(
    "remote.log.storage.manager.class.name",
    String(non_empty=True),
    importance=MEDIUM,
    effective=True,
    doc="The class that implements the remote store.",
)
REMOTE_LOG_STORAGE_MANAGER_CLASS_PATH = key(
    "remote.log.storage.manager.class.path",
    String(),
    importance=MEDIUM,
    doc="Where the class of remote.log.storage.manager.class.name is found.",
)
REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX = key(
    "remote.log.storage.manager.impl.prefix",
    String(non_empty=True),
    default="rsm.config.",
    importance=MEDIUM,
    effective=True,
    doc="The prefix of the keys that are passed to the class of remote.log.storage.manager.class.name.",
)
REMOTE_LOG_STORAGE_SYSTEM_ENABLE = key(
    "remote.log.storage.system.enable",
    Bool(),
    default=False,
    importance=MEDIUM,
    effective=True,
    doc="Turns on tiered storage on this broker.",
)
