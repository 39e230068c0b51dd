"""Implements the Kafka wire protocol: messages, frames, error codes, record batches. No I/O, no clock; knows no other floor."""

from ottla.protocol import compiled as compiled  # decides what the imports after it find
