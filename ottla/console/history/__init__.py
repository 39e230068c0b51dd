"""Keeps the last hour of a cluster in numbers, for the charts of the console."""
