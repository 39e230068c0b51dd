"""Keeps the state of the active controller, and changes the state of partitions."""
