"""Defines principals, and decides what they may do."""
