"""Implements the broker process: connections, requests, waits, groups, metrics, supervisor and command line."""
