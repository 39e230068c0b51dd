"""Implements the `ottla` command line, one module or one package for each command."""
