"""Stores partitions as Kafka's log directories: segments, indexes, checkpoints, recovery, cleaning."""
