"""Compacts logs: keeps the latest record of every key."""
