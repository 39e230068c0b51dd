"""The Kafka wire protocol: messages, frames, error codes, record batches. No I/O, no clock; knows nobody above it."""

from protocol import compiled as compiled  # decides what the imports after it find
