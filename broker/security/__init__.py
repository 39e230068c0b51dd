"""Defines principals, and decides which operations they may perform."""
