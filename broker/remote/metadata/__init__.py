"""Reads and writes `__remote_log_metadata` as a client of the cluster: topic, reader, writer, snapshots."""
