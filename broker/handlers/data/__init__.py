"""Handles Produce, Fetch, and the other requests that read or write logs."""
