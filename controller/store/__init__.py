"""Stores cluster metadata as Kafka's znodes."""
