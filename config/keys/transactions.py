"""Declares the keys of transactions: idempotent producers and transactional ids."""

from ottla.config.schema.key import CLUSTER, DAY, HIGH, HOUR, LOW, MINUTE, SECOND, MiB, key
from ottla.config.schema.types import Bool, Int, Short

PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS = key(
    "producer.id.expiration.check.interval.ms",
    Int(1),
    default=10 * MINUTE,
    importance=LOW,
    internal=True,
    effective=True,
    doc="How often a partition looks for producers it may forget.",
)
PRODUCER_ID_EXPIRATION_MS = key(
    "producer.id.expiration.ms",
    Int(1),
    default=DAY,
    importance=LOW,
    dynamic=CLUSTER,
    effective=True,
    doc="A partition forgets the sequence numbers of an idempotent producer that wrote nothing for this long.",
)
TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS = key(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    Int(1),
    default=10 * SECOND,
    importance=LOW,
    effective=True,
    doc="How often the coordinator looks for transactions that ran past their timeout, and aborts them.",
)
TRANSACTION_MAX_TIMEOUT_MS = key(
    "transaction.max.timeout.ms",
    Int(1),
    default=15 * MINUTE,
    importance=HIGH,
    effective=True,
    doc="The longest transaction timeout that a producer may request.",
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE = key(
    "transaction.partition.verification.enable",
    Bool(),
    default=True,
    importance=LOW,
    dynamic=CLUSTER,
    effective=True,
    doc="Asks the coordinator, before a transactional write, whether the partition is part of an open transaction.",
)
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS = key(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    Int(1),
    default=HOUR,
    importance=LOW,
    effective=True,
    doc="How often the coordinator looks for transactional ids that it may forget.",
)
TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE = key(
    "transaction.state.log.load.buffer.size",
    Int(1),
    default=5 * MiB,
    importance=HIGH,
    effective=True,
    doc="How many bytes of the transaction topic are read at a time when a coordinator loads it.",
)
TRANSACTION_STATE_LOG_MIN_ISR = key(
    "transaction.state.log.min.isr",
    Int(1),
    default=2,
    standalone=1,
    importance=HIGH,
    effective=True,
    doc="The min.insync.replicas the transaction topic is created with.",
)
TRANSACTION_STATE_LOG_NUM_PARTITIONS = key(
    "transaction.state.log.num.partitions",
    Int(1),
    default=50,
    importance=HIGH,
    effective=True,
    doc="How many partitions the transaction topic is created with; not to be changed afterwards.",
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = key(
    "transaction.state.log.replication.factor",
    Short(1),
    default=3,
    standalone=1,
    importance=HIGH,
    effective=True,
    doc="The replication factor the transaction topic is created with; creation waits until there are as many brokers.",
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES = key(
    "transaction.state.log.segment.bytes",
    Int(1),
    default=100 * MiB,
    importance=HIGH,
    effective=True,
    doc="The segment size of the transaction topic, kept small so that compaction and loading are quick.",
)
TRANSACTIONAL_ID_EXPIRATION_MS = key(
    "transactional.id.expiration.ms",
    Int(1),
    default=7 * DAY,
    importance=HIGH,
    effective=True,
    doc="A transactional id that was not used for this long is forgotten.",
)
