"""Encodes and decodes Kafka's znodes: paths, bodies, orders of keys."""
