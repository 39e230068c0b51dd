"""Spark against a broker: the data pipeline, and the ways in which Spark's Kafka source and sink can be used."""
