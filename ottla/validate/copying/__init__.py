"""Copies rows from topic to topic in transactions: what `ottla validate --exactly-once` adds to the pipeline.

`copier` is one process, `rows` is what a copier does to a row, and `copiers` starts, watches and ends all processes.
"""
