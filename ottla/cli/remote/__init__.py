"""Shows, checks and restores what topics with tiered storage have in the remote store, for `ottla remote`."""
