"""The data pipeline: a Spark job that shows whether a Kafka cluster keeps every record, in order, once, and how fast.

`ottla validate` starts it as `python -m benchmarks.pipeline`. Stages: `generate` writes with Spark's Kafka sink, `ingest` reads with
Structured Streaming while it does, `verify` and `measure` judge what came through in Spark SQL, `report` tells it. Only aggregates and a
few examples reach the driver, so the same code runs on one machine and on a cluster of executors.
"""
