"""Handles the events of the active controller: brokers, topics, ISR changes, elections, reassignments."""
