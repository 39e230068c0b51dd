"""Measures brokers side by side. See README.md in this folder; `python -m benchmarks.bench` is `make bench`."""
