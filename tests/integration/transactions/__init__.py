"""Tests transactions of real clients and odd requests, each against Ottla or against Apache Kafka; see `tests/support/judged_broker.py`."""
