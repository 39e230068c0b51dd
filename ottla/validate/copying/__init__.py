"""Copies rows from topic to topic in transactions: what `ottla validate --exactly-once` adds to the pipeline.

`copier` is one process of the copiers, `rows` is what it does to a row, and `copiers` starts them all, watches them, and ends them.
"""
