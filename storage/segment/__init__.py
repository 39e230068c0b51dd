"""Implements one segment of a log and its indexes."""
