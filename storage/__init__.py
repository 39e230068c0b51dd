"""Stores partitions as Kafka's log directories: segments, indexes, checkpoints, recovery, cleaning."""

from protocol import compiled as compiled  # decides what the imports after it find
