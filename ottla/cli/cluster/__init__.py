"""Implements the commands of `ottla cluster`: several brokers on this host under a supervisor, which restarts those that die."""
