"""Offers brokers for tests: fixtures for pytest, and the classes behind them for other test runners."""

from pytest_ottla.broker import Broker, OttlaError, Record, async_broker
from pytest_ottla.cluster import Cluster
from pytest_ottla.namespace import Kafka

__all__ = ["Broker", "Cluster", "Kafka", "OttlaError", "Record", "async_broker"]
