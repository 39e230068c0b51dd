"""Examines hosts, log directories and clusters for `ottla doctor`, without changing anything."""
