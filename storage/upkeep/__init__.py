"""Maintains logs in the background: flushes, retention, checkpoints, deletions, idle files."""
