"""Knows the entries of remote segments from the records of `__remote_log_metadata`: their bytes, caches, snapshots."""
