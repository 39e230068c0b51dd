"""Coordinates the partitions of an internal topic: loading, appending and unloading, for any coordinator."""
