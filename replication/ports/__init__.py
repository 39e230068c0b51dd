"""Declares what replication needs from the broker, and what it shares with other floors."""
