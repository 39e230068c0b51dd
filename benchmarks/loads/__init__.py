"""Makes the requests of each load, and the topics that it needs."""
