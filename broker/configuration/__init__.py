"""Applies changes of configurations and quotas to the running broker."""
