"""Implements the broker process: connections, requests, waits, groups, metrics, supervisor and command line."""

from ottla.protocol import compiled as compiled  # decides what the imports after it find
