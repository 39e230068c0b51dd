"""What people do with a broker, from end to end, small enough to read."""
