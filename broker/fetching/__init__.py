"""Keeps fetch sessions and the partitions that changed in them."""
