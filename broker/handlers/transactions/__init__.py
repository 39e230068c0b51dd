"""Handles requests about producers and transactions."""
