"""Shows the records of share groups."""
