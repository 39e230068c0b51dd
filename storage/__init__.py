"""Stores partitions as Kafka's log directories: segments, indexes, checkpoints, recovery, cleaning."""

from ottla.protocol import compiled as compiled  # decides what the imports after it find
