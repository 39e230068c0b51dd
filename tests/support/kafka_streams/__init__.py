"""Runs a Kafka Streams application in exactly_once_v2, and judges its output."""
