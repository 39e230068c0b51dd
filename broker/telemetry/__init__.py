"""Receives the metrics of clients (KIP-714): which metrics a client shall push, how often, and the latest values that it has pushed."""
