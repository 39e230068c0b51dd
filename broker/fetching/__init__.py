"""Keeps fetch sessions, and tracks the partitions that changed in them."""
