"""Handles requests, one module for each API."""
