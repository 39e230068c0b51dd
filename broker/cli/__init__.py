"""Implements the `ottla` command line, one module for each command."""
