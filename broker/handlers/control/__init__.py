"""Handles requests between brokers and about the cluster."""
