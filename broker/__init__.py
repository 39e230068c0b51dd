"""Implements the broker process: connections, requests and their handlers, security, quotas, metrics."""

from ottla.protocol import compiled as compiled  # decides what the imports after it find
