"""Fetches the records of followed partitions from their leaders."""
