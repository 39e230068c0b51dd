"""Lets operations wait for partitions and for time."""
