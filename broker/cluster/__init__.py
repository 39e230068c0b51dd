"""Connects a broker with the other brokers of its cluster: control requests, controller, deletions, failures."""
