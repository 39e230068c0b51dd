"""Starts the brokers and clusters that are measured, and reads what they cost."""
