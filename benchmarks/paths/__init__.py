"""Measures single paths of a broker in one process, without Apache Kafka beside it."""
