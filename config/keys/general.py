"""Declares the keys of the broker: its identity, the topics it creates, and how it stops."""

from ottla.config.schema.key import CLUSTER, HIGH, LOW, MEDIUM, SECOND, key
from ottla.config.schema.types import Bool, Class, Int, Long, String

ALTER_CONFIG_POLICY_CLASS_NAME = key(
    "alter.config.policy.class.name",
    Class(),
    importance=LOW,
    effective=True,
    doc="A class of Java that may refuse a configuration change. It cannot be loaded, so a value stops the start.",
)
AUTO_CREATE_TOPICS_ENABLE = key(
    "auto.create.topics.enable",
    Bool(),
    default=True,
    importance=HIGH,
    effective=True,
    doc="A topic that does not exist is created when a client asks for its metadata or writes to it.",
)
BACKGROUND_THREADS = key(
    "background.threads",
    Int(1),
    default=10,
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="How many background jobs, such as loading coordinator partitions or deleting files, may run at once.",
)
BROKER_ID = key(
    "broker.id",
    Int(),
    default=-1,
    importance=HIGH,
    effective=True,
    doc="The number of this broker in the cluster; with -1 the cluster assigns a free one.",
)
BROKER_ID_GENERATION_ENABLE = key(
    "broker.id.generation.enable",
    Bool(),
    default=True,
    importance=MEDIUM,
    effective=True,
    doc="Lets the cluster assign a broker id above reserved.broker.max.id when broker.id is -1.",
)
BROKER_RACK = key(
    "broker.rack",
    String(),
    importance=MEDIUM,
    effective=True,
    doc=(
        "The rack or zone of this broker; replicas of a partition are spread over racks, and consumers may read from the replica in "
        "their own."
    ),
)
CONTROLLED_SHUTDOWN_ENABLE = key(
    "controlled.shutdown.enable",
    Bool(),
    default=True,
    importance=MEDIUM,
    effective=True,
    doc="Before it stops, the broker asks the controller to move its leaderships to other brokers.",
)
CONTROLLED_SHUTDOWN_MAX_RETRIES = key(
    "controlled.shutdown.max.retries",
    Int(),
    default=3,
    importance=MEDIUM,
    effective=True,
    doc="How many times the broker asks the controller to move its leaderships before it stops anyway.",
)
CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS = key(
    "controlled.shutdown.retry.backoff.ms",
    Long(),
    default=5 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="How long the broker waits between two attempts to move its leaderships.",
)
CREATE_TOPIC_POLICY_CLASS_NAME = key(
    "create.topic.policy.class.name",
    Class(),
    importance=LOW,
    effective=True,
    doc="A class of Java that may refuse the creation of a topic. It cannot be loaded, so a value stops the start.",
)
DEFAULT_REPLICATION_FACTOR = key(
    "default.replication.factor",
    Int(),
    default=1,
    importance=MEDIUM,
    effective=True,
    doc="The replication factor of topics created on demand, and of CreateTopics requests that leave it to the broker.",
)
DELETE_TOPIC_ENABLE = key(
    "delete.topic.enable",
    Bool(),
    default=True,
    importance=HIGH,
    effective=True,
    doc="Allows topics to be deleted; otherwise DeleteTopics is refused.",
)
MIN_INSYNC_REPLICAS = key(
    "min.insync.replicas",
    Int(1),
    default=1,
    topic="min.insync.replicas",
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="With acks=all a write is refused unless at least this many replicas, the leader among them, are in sync.",
)
NUM_PARTITIONS = key(
    "num.partitions",
    Int(1),
    default=1,
    importance=MEDIUM,
    effective=True,
    doc="The partition count of topics created on demand, and of CreateTopics requests that leave it to the broker.",
)
RESERVED_BROKER_MAX_ID = key(
    "reserved.broker.max.id",
    Int(0),
    default=1000,
    importance=MEDIUM,
    effective=True,
    doc="The largest id that may be given as broker.id; generated ids begin above it.",
)
