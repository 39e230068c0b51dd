"""Tests exactly-once work of real programs while brokers of a cluster are killed, stopped and exchanged."""
