"""Shows a cluster at work, on one screen: `make demo`. Brokers are killed while web events are written, read by a group, and checked."""
