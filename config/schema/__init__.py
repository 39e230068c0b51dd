"""Defines what a configuration key is: its type, bounds, default and scope."""
