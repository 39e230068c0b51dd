"""Tracks the producers of a log: epochs, sequences, transactions, snapshots."""
