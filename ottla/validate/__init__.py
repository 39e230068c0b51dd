"""Checks with a Spark job whether a Kafka cluster keeps every record, in order, once, and how fast.

Stages: `generate` writes with Spark's Kafka sink, `ingest` reads with
Structured Streaming meanwhile, `verify` and `measure` judge the received records in Spark SQL, `report` writes the report. Only aggregates
and a few examples reach the driver, so the same code runs on one machine and on a cluster of executors.
"""
