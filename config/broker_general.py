"""Who the broker is, which topics it makes, and how it stops."""

from config.key import CLUSTER, HIGH, LOW, MEDIUM, SECOND, key
from config.types import Bool, Class, Int, Long, String

ALTER_CONFIG_POLICY_CLASS_NAME = key("alter.config.policy.class.name", Class(), importance=LOW, doc="?")
AUTO_CREATE_TOPICS_ENABLE = key("auto.create.topics.enable", Bool(), default=True, importance=HIGH, effective=True, doc="?")
BACKGROUND_THREADS = key("background.threads", Int(1), default=10, importance=HIGH, dynamic=CLUSTER, doc="?")
BROKER_ID = key("broker.id", Int(), default=-1, importance=HIGH, effective=True, doc="?")
BROKER_ID_GENERATION_ENABLE = key("broker.id.generation.enable", Bool(), default=True, importance=MEDIUM, effective=True, doc="?")
BROKER_RACK = key("broker.rack", String(), importance=MEDIUM, effective=True, doc="?")
CONTROLLED_SHUTDOWN_ENABLE = key("controlled.shutdown.enable", Bool(), default=True, importance=MEDIUM, doc="?")
CONTROLLED_SHUTDOWN_MAX_RETRIES = key("controlled.shutdown.max.retries", Int(), default=3, importance=MEDIUM, doc="?")
CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS = key("controlled.shutdown.retry.backoff.ms", Long(), default=5 * SECOND, importance=MEDIUM, doc="?")
CREATE_TOPIC_POLICY_CLASS_NAME = key("create.topic.policy.class.name", Class(), importance=LOW, doc="?")
DEFAULT_REPLICATION_FACTOR = key("default.replication.factor", Int(), default=1, importance=MEDIUM, effective=True, doc="?")
DELETE_TOPIC_ENABLE = key("delete.topic.enable", Bool(), default=True, importance=HIGH, effective=True, doc="?")
MIN_INSYNC_REPLICAS = key(
    "min.insync.replicas", Int(1), default=1, topic="min.insync.replicas", importance=HIGH, dynamic=CLUSTER, effective=True, doc="?"
)
NUM_PARTITIONS = key("num.partitions", Int(1), default=1, importance=MEDIUM, effective=True, doc="?")
RESERVED_BROKER_MAX_ID = key("reserved.broker.max.id", Int(0), default=1000, importance=MEDIUM, effective=True, doc="?")
